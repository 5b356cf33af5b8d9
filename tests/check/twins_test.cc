// Bugs behind a condition are found, clean norms are not accused, and a failure can be repeated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plugins/check/points.h"
#include "tests/check/checker_process.h"

namespace plumb::check {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string Twin(int number) {
  return std::string(PLUMB_TWIN_DIR) + "/twin_" + std::to_string(number) + ".so";
}

CheckerRun RunFor(const std::string& path, const std::string& check, int seed) {
  return RunChecker(
      {"--json", "--check", check, "--seconds", "30", "--seed", std::to_string(seed), path});
}

struct Case {
  int twin;
  const char* check;
};

class TwinTest : public ::testing::TestWithParam<Case> {};

TEST_P(TwinTest, IsFound) {
  const CheckerRun run = RunFor(Twin(GetParam().twin), GetParam().check, GetParam().twin);
  const nlohmann::json report = nlohmann::json::parse(run.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.out << run.err;
  EXPECT_THAT(ChecksWith("fail", report), Contains(GetParam().check)) << run.out;
}

INSTANTIATE_TEST_SUITE_P(
    Some, TwinTest,
    ::testing::Values(
        Case{1, "X2"}, Case{5, "X1"}, Case{14, "X1"}, Case{19, "X3"}, Case{22, "X1"},
        Case{24, "X4"}, Case{68, "X6"}, Case{69, "X6"}, Case{73, "X6"}, Case{82, "X5"},
        Case{84, "X5"}, Case{66, "X7"}, Case{85, "X2"}, Case{101, "X2"}, Case{108, "X3"},
        Case{127, "X1"}, Case{262, "X6"}, Case{264, "X7"}, Case{267, "X7"}, Case{272, "N16"},
        Case{280, "N16"}, Case{281, "X5"}, Case{285, "X5"}, Case{290, "X2"}, Case{291, "N4"},
        Case{114, "X2"}, Case{294, "X1"}, Case{143, "X1"}, Case{151, "M4"}, Case{154, "M4"},
        Case{209, "X1"}, Case{211, "X1"}, Case{225, "X4"}, Case{227, "X4"}, Case{228, "X4"},
        Case{42, "X2"}, Case{75, "X6"}, Case{222, "N8"}, Case{223, "N8"}, Case{246, "X6"},
        Case{247, "X7"}, Case{208, "X1"}, Case{301, "X3"}, Case{302, "X3"}, Case{303, "X3"},
        Case{305, "X5"}, Case{306, "X5"}, Case{307, "X5"}, Case{308, "X5"}, Case{309, "X5"},
        Case{310, "X6"}, Case{311, "X6"}, Case{312, "X6"}, Case{313, "X6"}),
    [](const auto& twin) { return "Twin" + std::to_string(twin.param.twin) + twin.param.check; });

TEST(CleanNormTest, IsNotAccused) {
  for (const char* name : {"honest", "honest_cross", "honest_cpp", "joins_a_thread"}) {
    for (const int seed : {11, 12}) {
      const CheckerRun run = RunChecker(
          {"--only-failed", "--seconds", "2", "--seed", std::to_string(seed), SabotagePath(name)});
      EXPECT_EQ(run.exit_code, 0) << name << " " << seed << "\n" << run.out << run.err;
    }
  }
}

TEST(ExploreTest, PrintsACommandThatRepeatsTheFailure) {
  const CheckerRun run = RunChecker({"--check", "X2", "--seconds", "30", Twin(1)});
  const std::string word = " --point ";
  const size_t at = run.out.find(word);
  ASSERT_NE(at, std::string::npos) << run.out;
  const size_t from = at + word.size();
  const std::string point = run.out.substr(from, run.out.find('\n', from) - from);
  EXPECT_THAT(point, HasSubstr("dim=16,")) << "the smallest that fails";
  EXPECT_EQ(RunChecker({"--check", "X2", "--point", point, Twin(1)}).exit_code, 1);
  EXPECT_EQ(RunChecker({"--check", "X2", "--point", "dim=17,rows=1", Twin(1)}).exit_code, 0);
}

TEST(ExploreTest, ACrashIsShrunkAndPrintsItsCommandToo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own report stands there";
#endif
  setenv("MISBEHAVE", "crash", 1);
  const CheckerRun run = RunChecker({"--check", "X3", SabotagePath("misbehaves")});
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
