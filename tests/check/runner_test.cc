// SPDX-License-Identifier: Apache-2.0
// Tests of the checker itself: its reports about plugins that end, hang or flood the process that
// runs them, and about files that are not plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plugins/check/check.h"
#include "tests/check/checker_process.h"

namespace plumb::check {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

nlohmann::json Report(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const CheckerRun run = RunChecker(all);
  nlohmann::json report = nlohmann::json::parse(run.out, nullptr, false);
  EXPECT_TRUE(report.is_object()) << run.out << run.err;
  return report;
}

// Returns the finding of check R7 if the plugin misbehaves in this way.
std::string FindingWhenItDoes(const char* way) {
  setenv("MISBEHAVE", way, 1);
  const nlohmann::json report = Report(
      {"--check", "R7", "--point", "dim=4,rows=2", "--timeout", "0.5", MutantPath("misbehaves")});
  unsetenv("MISBEHAVE");
  EXPECT_EQ(report.at("results").size(), 1u);
  const nlohmann::json& result = report.at("results").at(0);
  if (result.at("verdict") == "note") return "pass";  // the number of points
  return result.at("findings").at(0).at("text");
}

TEST(RunnerTest, ACrashNamesTheSignalAndTheCall) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own report stands there";
#endif
  EXPECT_THAT(FindingWhenItDoes("crash"),
              AllOf(StartsWith("SIGSEGV in forward f32 dim="), HasSubstr(" rows 0.."),
                    HasSubstr("at address 0x8")));
  EXPECT_THAT(FindingWhenItDoes("abort"), StartsWith("SIGABRT in forward f32 dim="));
}

TEST(RunnerTest, EndingTheProcessIsAFinding) {
  EXPECT_THAT(FindingWhenItDoes("exit"), StartsWith("ended the process during forward f32 dim="));
  EXPECT_THAT(FindingWhenItDoes("exit7"),
              StartsWith("ended the process with exit status 7 during forward f32 dim="));
}

TEST(RunnerTest, AHangIsStoppedAndNamed) {
  EXPECT_THAT(FindingWhenItDoes("hang"), AllOf(StartsWith("does not return from forward f32 dim="),
                                               HasSubstr("stopped after 0.5 s")));
}

TEST(RunnerTest, DropsTheOutputOfPlugins) { EXPECT_EQ(FindingWhenItDoes("print"), "pass"); }

TEST(RunnerTest, ProcessesThatAPluginLeavesBehindDoNotHoldTheCheckerUp) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the plugin forks in every call, which the sanitizer makes slow";
#endif
  EXPECT_EQ(FindingWhenItDoes("fork"), "pass");
}

TEST(RunnerTest, FailFastEndsAtTheFirstFailure) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own report stands there";
#endif
  setenv("MISBEHAVE", "exit", 1);
  const nlohmann::json report = Report({"--fail-fast", "--jobs", "1", "--check", "N8", "--check",
                                        "N4", "--check", "N2", MutantPath("misbehaves")});
  unsetenv("MISBEHAVE");
  EXPECT_THAT(ChecksWith("fail", report), ElementsAre("N2"));
  EXPECT_THAT(ChecksWith("skip", report), ElementsAre("N4", "N8"));
}

TEST(RunnerTest, AFileThatIsNoPluginCannotBeLoaded) {
  const CheckerRun run = RunChecker({"--json", PLUMB_SOURCE_DIR "/CMakeLists.txt"});
  EXPECT_EQ(run.exit_code, 2);
  const nlohmann::json report = nlohmann::json::parse(run.out);
  EXPECT_THAT(std::string(report.at("load_problem")), HasSubstr("it has no ELF header"));
  EXPECT_THAT(ChecksWith("fail", report), ElementsAre("E1"));
}

TEST(RunnerTest, DependentChecksAreSkippedWhenTheFileDoesNotLoad) {
  const nlohmann::json report = Report({MutantPath("unresolved")});
  EXPECT_EQ(report.at("exit_code"), 2);
  EXPECT_THAT(ChecksWith("fail", report), ElementsAre("E1"));
  EXPECT_THAT(ChecksWith("skip", report), ::testing::IsSupersetOf({"E5", "M1", "M2", "N1"}));
}

TEST(RunnerTest, MissingFilesAndUnknownChecksAreUsageErrors) {
  const CheckerRun missing = RunChecker({"/nonexistent/norm.so"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("/nonexistent/norm.so"));
  EXPECT_EQ(RunChecker({"/tmp"}).exit_code, 2);
  const CheckerRun unknown = RunChecker({MutantPath("honest_cpp"), "--check", "N99"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("N99"));
  EXPECT_EQ(RunChecker({}).exit_code, 2);
  const CheckerRun norm = RunChecker({MutantPath("honest_cpp"), "--norm", "org.example.none"});
  EXPECT_EQ(norm.exit_code, 2);
  EXPECT_THAT(norm.out, HasSubstr("it holds no norm org.example.none"));
}

TEST(RunnerTest, RemovedChecksNameTheirSuccessors) {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const CheckerRun run = RunChecker(arguments);
    EXPECT_EQ(run.exit_code, 2);
    return run.err;
  };
  EXPECT_THAT(error_of({"--check", "x3"}), HasSubstr("X3 is removed; use N4"));
  EXPECT_THAT(error_of({"--check", "P1"}), HasSubstr("P1 is removed; use plumb plugin bench"));
  EXPECT_THAT(error_of({"--perf"}), HasSubstr("use plumb plugin bench"));
}

TEST(RunnerTest, AChosenCheckRunsAlone) {
  const nlohmann::json report =
      Report({"--level", "1", "--check", "n4", "--check", "E2", MutantPath("honest_cpp")});
  std::vector<std::string> checks;
  for (const nlohmann::json& result : report.at("results")) checks.push_back(result.at("check"));
  EXPECT_THAT(checks, ElementsAre("E2", "N4"));
  EXPECT_EQ(report.at("exit_code"), 0);
}

TEST(RunnerTest, LevelsDropTheChecksAboveThem) {
  const nlohmann::json report = Report({"--level", "1", MutantPath("honest_cpp")});
  for (const nlohmann::json& result : report.at("results")) EXPECT_EQ(result.at("level"), 1);
}

TEST(RunnerTest, RunsInItsOwnProcessForADebugger) {
  const nlohmann::json report = Report({"--in-process", "--check", "N4", MutantPath("honest_cpp")});
  EXPECT_EQ(report.at("exit_code"), 0);
  EXPECT_THAT(ChecksWith("note", report), ElementsAre("N4"));  // the number of points
}

TEST(RunnerTest, TheTextHasALineForEachCheckAndNoColoursInAFile) {
  const CheckerRun run = RunChecker({"--level", "1", MutantPath("no_version")});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, AllOf(HasSubstr("  M1   FAIL  metadata"),
                             HasSubstr("its version is missing"), HasSubstr("org.example.base\n"),
                             HasSubstr("1 failed"), Not(HasSubstr("\033"))));
  EXPECT_THAT(run.err, IsEmpty());
  const CheckerRun brief = RunChecker({"--level", "1", "--only-failed", MutantPath("no_version")});
  EXPECT_THAT(brief.out, AllOf(HasSubstr("M1   FAIL"), Not(HasSubstr("M2"))));
}

TEST(RunnerTest, ListsItsChecks) {
  const CheckerRun run = RunChecker({"--list"});
  EXPECT_EQ(run.exit_code, 0);
  for (const Check& check : AllChecks()) EXPECT_THAT(run.out, HasSubstr(check.title));
}

TEST(RunnerTest, RowsGigabytesApartAreTriedWhereTheSystemAllowsSoManyAddresses) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer itself needs more addresses";
#endif
  const std::vector<std::string> arguments = {"--check", "N8", MutantPath("honest_cpp")};
  EXPECT_THAT(RunChecker(arguments).out, Not(HasSubstr("apart")));
  // The limit is set in another process, because it cannot be raised again.
  const auto run_with_few = [&arguments] {
    rlimit few = {};
    few.rlim_cur = few.rlim_max = rlim_t{4} << 30;
    setrlimit(RLIMIT_AS, &few);
    const CheckerRun run = RunChecker(arguments);
    std::cerr << run.out << run.err;
    std::_Exit(run.exit_code);
  };
  EXPECT_EXIT(run_with_few(), ::testing::ExitedWithCode(0),
              "rows gigabytes apart were not tried: no .* GiB of addresses");
}

// Truncated files are refused, because of their notes or by the loader.
TEST(RunnerTest, ATruncatedPluginIsRefused) {
  std::ifstream stream(MutantPath("honest_cpp"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  const std::string path = ::testing::TempDir() + "/plumb_check_truncated.so";
  // A loader may not need the second half of the file, which holds symbols in a debug build.
  for (const size_t size : {size_t{0}, size_t{3}, size_t{64}, size_t{1000}, bytes.size() / 4}) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    const CheckerRun run = RunChecker({"--json", "--level", "1", path});
    EXPECT_EQ(run.exit_code, 2) << size;
    const nlohmann::json report = nlohmann::json::parse(run.out, nullptr, false);
    ASSERT_TRUE(report.is_object()) << run.err;
    EXPECT_THAT(ChecksWith("fail", report), ElementsAre("E1")) << size;
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace plumb::check
