// SPDX-License-Identifier: Apache-2.0
// Every rule has plugins that break it, which its check must find. Correct norms pass all checks,
// and a failure can be repeated. tests/check/mutants.sh runs all checks on every mutant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "tests/check/checker_process.h"

namespace plumb::check {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Mutant> MutantsWithACheck() {
  std::vector<Mutant> known;
  for (const Mutant& mutant : AllMutants()) {
    if (mutant.check != "any") known.push_back(mutant);
  }
  return known;
}

class MutantTest : public ::testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsFoundByItsCheck) {
  const Mutant& mutant = GetParam();
  // The time limit is shorter than a user's, so that a hang does not take long.
  std::vector<std::string> arguments = {"--json", "--timeout", "3", mutant.path};
  if (mutant.check != "none") {
    arguments.insert(arguments.end(), {"--check", mutant.check, "--seconds", "30"});
  }
  const CheckerRun run = RunChecker(arguments);
  const nlohmann::json report = nlohmann::json::parse(run.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.out << run.err;
  EXPECT_EQ(run.exit_code, report.at("exit_code")) << run.err;
  const std::set<std::string> failed = ChecksWith("fail", report);
  // glibc refuses to load such a file since version 2.41.
  if (mutant.name() == "e3_executable_stack" && failed.count("E4") > 0) return;
  if (mutant.verdict == "fail") {
    EXPECT_THAT(failed, Contains(mutant.check)) << run.out;
    EXPECT_NE(run.exit_code, 0);
    return;
  }
  EXPECT_THAT(failed, IsEmpty()) << run.out;
  if (mutant.verdict == "warn") {
    EXPECT_THAT(ChecksWith("warn", report), Contains(mutant.check)) << run.out;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MutantTest, ::testing::ValuesIn(MutantsWithACheck()),
                         [](const auto& mutant) { return mutant.param.name(); });

TEST(MutantListTest, CoversEveryCheck) {
  std::set<std::string> covered;
  for (const Mutant& mutant : AllMutants()) covered.insert(mutant.check);
  for (const Check& check : AllChecks()) EXPECT_THAT(covered, Contains(check.id)) << check.title;
}

TEST(ExploreTest, PrintsACommandThatRepeatsTheFailure) {
  const std::string mutant = MutantPath("mutant_1");
  const CheckerRun run = RunChecker({"--check", "X2", "--seconds", "30", mutant});
  const std::string word = " --point ";
  const size_t at = run.out.find(word);
  ASSERT_NE(at, std::string::npos) << run.out;
  const size_t from = at + word.size();
  const std::string point = run.out.substr(from, run.out.find('\n', from) - from);
  EXPECT_THAT(point, HasSubstr("dim=16,")) << "the smallest that fails";
  EXPECT_EQ(RunChecker({"--check", "X2", "--point", point, mutant}).exit_code, 1);
  EXPECT_EQ(RunChecker({"--check", "X2", "--point", "dim=17,rows=1", mutant}).exit_code, 0);
}

TEST(ExploreTest, ACrashIsShrunkAndPrintsItsCommandToo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own report stands there";
#endif
  setenv("MISBEHAVE", "crash", 1);
  const CheckerRun run = RunChecker({"--check", "X3", MutantPath("misbehaves")});
  unsetenv("MISBEHAVE");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("SIGSEGV in forward f32 dim=1 rows 0..1"));
  EXPECT_THAT(run.out, HasSubstr(" --check X3 --point dim=1,rows=1"));
}

TEST(ExploreTest, PointsAreRead) {
  const std::optional<Point> point = ParsePoint("dim=33,rows=7,from=2,to=3,type=bf16,x=4");
  ASSERT_TRUE(point.has_value());
  EXPECT_EQ((*point)[kDim], 33);
  EXPECT_EQ((*point)[kType], 1);
  EXPECT_EQ(NameOfPoint(*point), "dim=33,rows=7,from=2,to=3,type=bf16,x=4");
  for (const char* bad : {"dim=0", "rows=2,to=3", "size=3", "type=4", "dim", "dim=x"}) {
    EXPECT_FALSE(ParsePoint(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace plumb::check
