#include "cli/compare/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plumb::cli {
namespace {

using testing::HasSubstr;

TEST(ShardTest, EveryRunBelongsToOneShard) {
  for (size_t run = 0; run < 20; ++run) {
    int owners = 0;
    for (const char* text : {"0/3", "1/3", "2/3"}) owners += ParseShard(text)->Has(run) ? 1 : 0;
    EXPECT_EQ(owners, 1) << run;
    EXPECT_TRUE(ParseShard("")->Has(run));
  }
  EXPECT_TRUE(ParseShard("1/3")->Has(4));
  EXPECT_EQ(ParseShard("1/3")->ToText(), "1/3");
}

TEST(ShardTest, WhatIsNoShardIsRefused) {
  for (const char* text : {"1", "/", "1/", "/2", "-1/2", "0/0", "a/b", "0/2/3", "0x0/2", "0/ 2",
                           "0/99999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseShard(text).status())) << text;
  }
  EXPECT_THAT(std::string(ParseShard("3/3").status().message()), HasSubstr("0/3 to 2/3"));
}

}  // namespace
}  // namespace plumb::cli
