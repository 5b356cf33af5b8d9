// SPDX-License-Identifier: Apache-2.0
// Tests of plumb doctor in prepared situations: the problems that it must name, and the exit code.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Sets an environment variable until the end of a test.
class Set {
 public:
  Set(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Set() {
    if (before_.empty()) {
      unsetenv(name_);
    } else {
      setenv(name_, before_.c_str(), 1);
    }
  }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  const char* const name_;
  std::string before_;
};

class DoctorTest : public PlumbTest {
 protected:
  // Returns the report and expects the exit code.
  json Report(int exit_code = 0, std::vector<std::string> more = {},
              const ResourceLimit& limit = {}) {
    more.insert(more.begin(), {"doctor", "--json"});
    const Finished result = RunPlumb(more, limit);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    const json report = json::parse(result.out, nullptr, false);
    EXPECT_TRUE(report.is_object()) << result.out;
    return report;
  }
  static std::vector<std::string> ProblemNames(const json& report) {
    std::vector<std::string> whats;
    for (const json& problem : report["problems"]) {
      EXPECT_NE(problem["do"], "");
      whats.push_back(problem["what"]);
    }
    return whats;
  }
};

TEST_F(DoctorTest, ReportsTheMachine) {
  const json report = Report();
  EXPECT_EQ(report["onednn"]["state"], "loaded") << report["onednn"];
  EXPECT_THAT(report["onednn"]["file"].get<std::string>(), HasSubstr("libdnnl.so."));
  EXPECT_GE(report["threads"]["used"], 1);
  EXPECT_GT(report["memory"]["limit"], 0);
  std::vector<std::string> norms;
  for (const json& place : report["plugins"]["directories"]) {
    for (const json& norm : place["norms"]) norms.push_back(norm["id"]);
  }
  EXPECT_THAT(norms, AllOf(Contains("rms_norm"), Contains("layer_norm")));

  const Finished text = RunPlumb({"doctor"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(StartsWith("plumb            "), HasSubstr("\noneDNN           "),
                              HasSubstr("rms_norm"), ContainsRegex(" [0-9]+ placements\n")));
  EXPECT_EQ(text.err, "");
}

TEST_F(DoctorTest, ReportsThePluginPath) {
  const std::string here = std::filesystem::canonical(directory()).string();
  const std::string open = here + "/open", broken = here + "/broken";
  std::filesystem::create_directory(open);
  std::filesystem::create_directory(broken);
  Write("broken/bad.so", "no library");
  const json before = Report();
  for (const json& place : before["plugins"]["directories"]) {
    for (const json& norm : place["norms"]) {
      if (norm["id"] != "rms_norm") continue;
      std::filesystem::copy_file(norm["file"].get<std::string>(), open + "/rms_norm.so");
    }
  }
  chmod(open.c_str(), 0775);
  // A shell sets the variables, so that they do not affect the other tests' plumb.
  const std::string doctor = "PLUMB_PLUGIN_PATH=/nowhere:relative/one:" + open + ":" + broken +
                             " " + PlumbBinary() + " doctor";
  ASSERT_EQ(std::system((doctor + " --json > " + Path("json")).c_str()), 0);
  ASSERT_EQ(std::system((doctor + " > " + Path("text")).c_str()), 0);
  const json report = ReadJson("json");
  const std::vector<std::string> whats = ProblemNames(report);
  EXPECT_THAT(whats, Contains(HasSubstr("\"relative/one\" is not an absolute path")));
  EXPECT_THAT(whats, Contains(AllOf(HasSubstr("/nowhere"), HasSubstr("No such file"))));
  EXPECT_THAT(whats, Contains(AllOf(HasSubstr("the norm \"rms_norm\""), HasSubstr("chmod go-w"),
                                    HasSubstr(open))));
  EXPECT_THAT(whats, Contains(AllOf(HasSubstr("broken/bad.so"), HasSubstr("no ELF header"))));
  const json& first = report["plugins"]["directories"][0];
  EXPECT_EQ(first["path"], "/nowhere");
  EXPECT_EQ(first["from"], "PLUMB_PLUGIN_PATH");
  EXPECT_NE(first["problem"], nullptr);

  EXPECT_THAT(Read("text"), AllOf(HasSubstr("problems:\n  1. "), HasSubstr("refused: rms_norm: ")));
}

TEST_F(DoctorTest, AnUnusableOptionIsFatalAndTheRestIsReported) {
  Write("bad.so", "no library");
  const json report = Report(1, {"--plugin", Path("bad.so")});
  EXPECT_EQ(report["problems"][0]["fatal"], true);
  EXPECT_THAT(report["problems"][0]["what"].get<std::string>(), HasSubstr("no ELF header"));
  EXPECT_GE(report["threads"]["used"], 1);
}

TEST_F(DoctorTest, ReportsThatOneDnnIsMissing) {
  const json library = Report()["onednn"];
  const std::string wanted = library["wanted"];
  std::filesystem::create_directory(Path("lib"));
  // The files have all names that plumb tries. The second is the major version alone:
  // "libdnnl.so.3" for "libdnnl.so.3.6".
  const std::string number = library["version"];
  const std::string major = number.substr(0, number.find('.'));
  const std::string minor = number.substr(0, number.find('.', major.size() + 1));
  for (const std::string& name : {wanted, "libdnnl.so." + major, "libdnnl.so." + minor}) {
    Write("lib/" + name, "no library");
  }
  const Set path("LD_LIBRARY_PATH", Path("lib"));
  const json report = Report();
  EXPECT_EQ(report["onednn"]["state"], "refused");
  EXPECT_THAT(ProblemNames(report),
              Contains(AllOf(HasSubstr("oneDNN cannot be used"), HasSubstr(wanted))));
  EXPECT_EQ(report["processor"]["gemm"]["f32"], "plumb's own engine");
  // All commands work without oneDNN.
  const Finished train = RunPlumb(TrainArguments("run", 3));
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_THAT(train.err, HasSubstr("warning: oneDNN cannot be used"));
  EXPECT_THAT(Read("run/run.json"), HasSubstr("\"matmul\":\"no oneDNN, "));
  EXPECT_EQ(RunPlumb({"sample", "run", "--num", "1"}).err, "") << "needs none";
  const Finished version = RunPlumb({"--version"});
  EXPECT_THAT(version.out, AllOf(HasSubstr(", no oneDNN, kernels "), HasSubstr("no oneDNN: ")));
  const Finished asked = RunPlumb({"describe", "pre.pbtxt", "--gemm", "onednn"});
  EXPECT_EQ(asked.exit_code, 2);
  EXPECT_THAT(asked.err, AllOf(HasSubstr("engine onednn cannot be used"), HasSubstr(wanted)));
  EXPECT_EQ(Report(1, {"--gemm", "onednn"})["problems"][0]["fatal"], true);
}

TEST_F(DoctorTest, ReportsThreads) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "there is one processor";
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const json bound = Report();
  const json more = Report(0, {"--threads", "3"});
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(bound["threads"]["available"], 1);
  EXPECT_THAT(ProblemNames(more), Contains("plumb uses 3 threads on 1 processor"));
  const Set threads("OMP_NUM_THREADS", "1");
  EXPECT_THAT(ProblemNames(Report()), Contains(HasSubstr("set by OMP_NUM_THREADS")));
}

#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer needs terabytes of it
TEST_F(DoctorTest, ReportsAMemoryLimit) {
  constexpr uint64_t kMiB = 1 << 20;
  const json report = Report(0, {}, {RLIMIT_AS, 300 * kMiB});
  EXPECT_EQ(report["memory"]["limit"], 300 * kMiB);
  EXPECT_EQ(report["memory"]["limited_by"], "ulimit -v");
  EXPECT_THAT(ProblemNames(report),
              Contains(AllOf(HasSubstr("little memory"), HasSubstr("ulimit -v"))));
}
#endif

#ifndef __SANITIZE_ADDRESS__  // LeakSanitizer reads /proc
// In a container with empty /proc and /sys their information is reported as unknown.
TEST_F(DoctorTest, WithoutProcAndSys) {
  const std::string empty =
      "unshare -rm sh -c 'mount -t tmpfs none /proc && mount -t tmpfs none /sys && ";
  if (std::system((empty + "true' 2> /dev/null").c_str()) != 0) {
    GTEST_SKIP() << "a user may not hide /proc here";
  }
  ASSERT_EQ(std::system((empty + PlumbBinary() + " doctor --json' > " + Path("out")).c_str()), 0);
  const json report = ReadJson("out");
  EXPECT_EQ(report["processor"]["name"], nullptr);
  EXPECT_GT(report["memory"]["limit"], 0);
  EXPECT_THAT(ProblemNames(report), Not(Contains(HasSubstr("little memory"))));
}
#endif

}  // namespace
}  // namespace plumb::cli
