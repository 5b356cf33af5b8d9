// Every rule has a plugin that breaks it: the check for the rule must say so, and no other may.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "plugins/check/check.h"
#include "tests/check/checker_process.h"

namespace plumb::check {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Speed is not measured unless it is asked for.
bool IsPerformance(const std::string& check) { return check[0] == 'P'; }

class SabotageTest : public ::testing::TestWithParam<Sabotage> {};

TEST_P(SabotageTest, TripsItsCheckAndNoOther) {
  const Sabotage& sabotage = GetParam();
  // A hang must not take the whole time that a user would wait.
  std::vector<std::string> arguments = {"--json", "--timeout", "3", sabotage.path};
  if (IsPerformance(sabotage.check)) {
    arguments.insert(arguments.end(), {"--check", sabotage.check});
  } else if (sabotage.verdict != "pass") {
    // What explores may find it too, and may not: twins_test is for that.
    for (const Check& check : AllChecks()) {
      if (check.explores || IsPerformance(check.id)) continue;
      arguments.insert(arguments.end(), {"--check", check.id});
    }
  }
  const CheckerRun run = RunChecker(arguments);
  const nlohmann::json report = nlohmann::json::parse(run.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.out << run.err;
  EXPECT_EQ(run.exit_code, report.at("exit_code")) << run.err;
  std::set<std::string> failed = ChecksWith("fail", report);
  // Since 2.41 glibc itself refuses to load such a file.
  if (sabotage.name() == "e3_executable_stack" && !report.at("load_problem").is_null()) {
    EXPECT_EQ(failed.erase("E4"), 1u) << run.out;
  }
  if (sabotage.verdict == "fail") {
    EXPECT_THAT(failed, ElementsAre(sabotage.check)) << run.out;
    EXPECT_NE(run.exit_code, 0);
    return;
  }
  EXPECT_THAT(failed, IsEmpty()) << run.out;
  if (sabotage.verdict == "pass") {
    EXPECT_EQ(run.exit_code, 0);
  }
  if (sabotage.verdict == "warn") {
    EXPECT_THAT(ChecksWith("warn", report), Contains(sabotage.check)) << run.out;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SabotageTest, ::testing::ValuesIn(AllSabotages()),
                         [](const auto& sabotage) { return sabotage.param.name(); });

TEST(SabotageListTest, CoversEveryCheck) {
  std::set<std::string> covered;
  for (const Sabotage& sabotage : AllSabotages()) covered.insert(sabotage.check);
  for (const Check& check : AllChecks()) {
    if (check.explores) continue;  // twins_test
    EXPECT_THAT(covered, Contains(check.id)) << check.title;
  }
}

}  // namespace
}  // namespace plumb::check
