// SPDX-License-Identifier: Apache-2.0
// Tests of plumb theory from the user's view.

#include <gmock/gmock.h>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TheoryCommandTest : public PlumbTest {
 protected:
  Finished Theory(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"theory",  "pre.pbtxt", "--set", "model.vocab_size=32",
                                          "--seeds", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }
};

TEST_F(TheoryCommandTest, ShowsMeasuredNextToPredicted) {
  const Finished result = Theory({"--depths", "4,2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("at initialization, 2 seeds"), HasSubstr("\n2 layers\n"),
                                HasSubstr("\n4 layers\n"), HasSubstr("log-log slope")));
}

TEST_F(TheoryCommandTest, PrintsAllNumbersAsJson) {
  const Finished result = Theory({"--depths", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["depths"][0]["stream"].size(), 3u);
  EXPECT_EQ(json["depths"][0]["gains"].size(), 4u);
}

TEST_F(TheoryCommandTest, NamesWhatReplacesOut) {
  const Finished result = Theory({"--out", "a"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--out: was removed; --json prints all numbers"));
}

TEST_F(TheoryCommandTest, ThreadsChangeNoNumber) {
  const Finished one = Theory({"--json", "--threads", "1"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.out, Theory({"--json", "--threads", "2"}).out);
}

TEST_F(TheoryCommandTest, ReportsErrors) {
  const Finished depths = Theory({"--depths", "8,x"});
  EXPECT_EQ(depths.exit_code, 2);
  EXPECT_THAT(depths.err, HasSubstr("\"x\" is not a whole number"));
  const Finished seq = Theory({"--seq", "1000"});
  EXPECT_EQ(seq.exit_code, 2);
  EXPECT_THAT(seq.err, HasSubstr("1000 different tokens need"));
  EXPECT_EQ(Theory({"--seeds", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace plumb::cli
