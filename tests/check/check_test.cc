// SPDX-License-Identifier: Apache-2.0
// Every rule has plugins that break it, which its check must find. Correct norms pass all checks,
// one cause fails one check, and a failure can be repeated.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "plumb/norm_plugin.h"
#include "tests/check/checker_process.h"

namespace plumb::check {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Mutant {
  std::string path, norm;      // norm: id; "": the only one of the file
  std::string check, verdict;  // "none": all checks pass
};
void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.path << " " << mutant.norm; }

// Mutants of the file itself, and correct plugins.
constexpr const char* kFiles[][3] = {
    {"no_note", "E1", "fail"},
    {"another_major", "E1", "fail"},
    {"unresolved", "E1", "fail"},
    {"no_entry", "E1", "fail"},
    {"exports_a_helper", "E2", "warn"},
    {"exports_a_host_name", "E2", "fail"},
    {"executable_stack", "E2", "fail"},
    {"text_relocation", "E2", "fail"},
    {"brings_a_thread_pool", "E2", "warn"},
    {"fast_math", "E5", "fail"},
    {"prints", "E5", "fail"},
    {"handles_signals", "E5", "fail"},
    {"starts_a_thread", "E5", "fail"},
    {"loads_slowly", "E5", "warn"},
    {"no_version", "M1", "fail"},
    {"not_utf8", "M1", "fail"},
    {"index_out_of_range", "M1", "fail"},
    {"another_pointer", "M1", "fail"},
    {"two_norms_one_id", "M1", "fail"},
    {"no_backward", "M1", "fail"},
    {"stochastic", "M1", "fail"},
    {"default_out_of_range", "M2", "fail"},
    {"no_doc", "M2", "fail"},
    {"throws", "R7", "fail"},
    {"honest_cpp", "none", "pass"},
    {"joins_a_thread", "none", "pass"},
    {"misbehaves", "none", "pass"},
    {"adaptive_norm", "none", "pass"},
    {"graceful_norm", "none", "pass"},
};

// Returns the mutants of the libraries of many.h: the vendor of a norm is its check.
std::vector<Mutant> AllMutants() {
  std::vector<Mutant> all;
  for (const auto& [name, check, verdict] : kFiles) {
    all.push_back({MutantPath(name), "", check, verdict});
  }
  for (const char* name : {"rms_loops", "deviation_rows", "sum_norm"}) {
    all.push_back({PLUMB_CLEAN_DIR "/" + std::string(name) + ".so", "", "none", "pass"});
  }
  for (const auto& file : std::filesystem::directory_iterator(PLUMB_MUTANT_DIR "/libraries")) {
    void* library = dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto entry = reinterpret_cast<plumb_norm_plugin_v1_fn>(
        library == nullptr ? nullptr : dlsym(library, PLUMB_NORM_ENTRY_SYMBOL));
    for (uint32_t i = 0; entry != nullptr && entry(i) != nullptr; ++i) {
      Mutant mutant{file.path(), entry(i)->id, "", "fail"};
      std::istringstream(entry(i)->vendor) >> mutant.check >> mutant.verdict;
#if defined(__SANITIZE_ADDRESS__)  // allocations and variables cannot be watched
      if (mutant.check == "R1" || mutant.check == "R4" || mutant.check == "M6") continue;
#endif
      if (mutant.check != "free") all.push_back(mutant);
    }
  }
  std::sort(all.begin(), all.end(), [](const Mutant& a, const Mutant& b) {
    return std::tie(a.path, a.norm) < std::tie(b.path, b.norm);
  });
  return all;
}

nlohmann::json Report(const Mutant& mutant, std::vector<std::string> arguments) {
  // The time limit is shorter than a user's, so that a hang does not take long.
  arguments.insert(arguments.end(), {"--json", "--timeout", "3", mutant.path});
  if (!mutant.norm.empty()) arguments.insert(arguments.end(), {"--norm", mutant.norm});
  const CheckerRun run = RunChecker(arguments);
  nlohmann::json report = nlohmann::json::parse(run.out, nullptr, false);
  EXPECT_TRUE(report.is_object()) << run.out << run.err;
  EXPECT_EQ(run.exit_code, report.at("exit_code")) << run.err;
  return report;
}

class MutantTest : public ::testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsFoundByItsCheck) {
  const Mutant& mutant = GetParam();
  std::vector<std::string> arguments;
  if (mutant.check != "none") arguments = {"--check", mutant.check, "--seconds", "30"};
  const nlohmann::json report = Report(mutant, arguments);
  const std::set<std::string> failed = ChecksWith("fail", report);
  // glibc refuses to load such a file since version 2.41.
  const bool stack = mutant.path.find("executable_stack") != std::string::npos;
  if (stack && failed.count("E1") > 0) return;
  if (mutant.verdict == "fail" && mutant.check != "none") {
    EXPECT_THAT(failed, Contains(mutant.check)) << report;
    return;
  }
  EXPECT_THAT(failed, IsEmpty()) << report;
  if (mutant.verdict == "warn") {
    EXPECT_THAT(ChecksWith("warn", report), Contains(mutant.check));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MutantTest, ::testing::ValuesIn(AllMutants()),
                         [](const auto& mutant) {
                           const std::string& path = mutant.param.path;
                           const std::string& norm = mutant.param.norm;
                           const size_t from = path.rfind('/') + 1;
                           return path.substr(from, path.rfind('.') - from) +
                                  norm.substr(std::min(norm.size(), norm.rfind('.') + 1));
                         });

#if !defined(__SANITIZE_ADDRESS__)  // with it, mutants of memory are omitted
TEST(MutantListTest, CoversEveryCheck) {
  std::set<std::string> covered;
  for (const Mutant& mutant : AllMutants()) covered.insert(mutant.check);
  for (const Check& check : AllChecks()) EXPECT_THAT(covered, Contains(check.id)) << check.title;
}
#endif

struct Cause {
  const char* library;
  const char* norm;
  const char* check;  // the only one that fails
  const char* text;   // of its message
};

class CauseTest : public ::testing::TestWithParam<Cause> {};

TEST_P(CauseTest, IsReportedOnceAndDirectly) {
  const std::string library = absl::StrCat(PLUMB_MUTANT_DIR "/libraries/", GetParam().library);
  const std::string norm = absl::StrCat("org.example.", GetParam().norm);
  const nlohmann::json report =
      Report({library, norm, "", ""}, {"--only-failed", "--seconds", "3"});
  EXPECT_THAT(ChecksWith("fail", report), ElementsAre(GetParam().check)) << report;
  EXPECT_THAT(report.at("results").dump(), HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    All, CauseTest,
    ::testing::Values(Cause{"authors_b.so", "m224", "N12", "as in f64"},
                      Cause{"rule.so", "m429", "N3", "it is overwritten, and must be added to"},
                      Cause{"rule.so", "m402", "N5",
                            "dparams[1][0] is 0.6416"},  // as the clock decides
                      Cause{"rule.so", "m405", "N7", "written: dx: byte 0 behind row"},
                      Cause{"rule.so", "m425", "R7", "does not return from forward f32"}),
    [](const auto& cause) { return cause.param.norm; });

TEST(ExploreTest, PrintsACommandThatRepeatsTheFailure) {
  const Mutant mutant = {PLUMB_MUTANT_DIR "/libraries/authors_a_rows.so", "org.example.m101", "",
                         ""};
  const auto run = [&](const std::string& point) {
    std::vector<std::string> arguments = {"--check", "N2", mutant.path, "--norm", mutant.norm};
    if (!point.empty()) arguments.insert(arguments.end(), {"--point", point});
    return RunChecker(arguments);
  };
  const std::string out = run("").out, word = " --point ";
  const size_t at = out.find(word);
  ASSERT_NE(at, std::string::npos) << out;
  const size_t from = at + word.size();
  const std::string point = out.substr(from, out.find('\n', from) - from);
  EXPECT_THAT(point, HasSubstr("dim=15,")) << "the smallest that fails";
  EXPECT_EQ(run(point).exit_code, 1);
  EXPECT_EQ(run("dim=17,rows=1").exit_code, 0);
}

// This was a false alarm: y = g x sigmoid(mean x) was -0 in f32, and -4e-194 in f64.
TEST(ExploreTest, NumbersBelowTheSmallestF32AreNotCompared) {
  const CheckerRun run = RunChecker({"--check", "N1", "--point", "dim=1,rows=3,to=3,x=13,seed=13",
                                     PLUMB_CLEAN_DIR "/sigmoid_gate.so"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
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
