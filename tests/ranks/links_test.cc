// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/links.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/ranks/local_ranks.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<int, int>> Measured(const std::vector<std::string>& hosts) {
  std::vector<std::pair<int, int>> first;
  const std::vector<absl::Status> results =
      RunRanks(static_cast<int>(hosts.size()), [&](Communicator* ranks) -> absl::Status {
        PLUMB_ASSIGN_OR_RETURN(const std::vector<LinkSpeed> links, MeasureLinks(ranks, hosts));
        for (const LinkSpeed& each : links) {
          EXPECT_GT(each.latency_seconds, 0);
          EXPECT_GT(each.bytes_per_second, 0);
          if (ranks->rank() == 0) first.push_back({each.a, each.b});
        }
        return absl::OkStatus();
      });
  for (const absl::Status& each : results) EXPECT_TRUE(each.ok()) << each;
  return first;
}

TEST(LinksTest, OneOfEachHostAndOneOfEachPairOfHosts) {
  EXPECT_TRUE(Measured({"a"}).empty());
  EXPECT_THAT(Measured({"a", "a", "a"}), ElementsAre(Pair(0, 1)));
  EXPECT_THAT(Measured({"a", "b", "a", "c", "c"}),
              ElementsAre(Pair(0, 2), Pair(3, 4), Pair(0, 1), Pair(0, 3), Pair(1, 3)));
}

TEST(LinksTest, ManyHostsMeasureOnlyTheFirstHostsLinks) {
  std::vector<std::string> hosts;
  for (char name = 'a'; name < 'a' + 9; ++name) hosts.emplace_back(1, name);
  const auto links = Measured(hosts);
  ASSERT_EQ(links.size(), 8u);
  for (const auto& each : links) EXPECT_EQ(each.first, 0);
}

}  // namespace
}  // namespace plumb
