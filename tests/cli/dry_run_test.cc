// SPDX-License-Identifier: Apache-2.0
// Tests of --dry-run of train and compare, and of runs that do not fit.

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <string>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class DryRunTest : public PlumbTest {
 protected:
  static std::vector<std::string> CompareArguments(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"compare",
                                          "pre.pbtxt",
                                          "post.pbtxt",
                                          "--data",
                                          "names.txt",
                                          "--train",
                                          "train.pbtxt",
                                          "--set",
                                          "train.max_steps=4",
                                          "--grid",
                                          "model.n_layer=1,2",
                                          "--seeds",
                                          "3",
                                          "--quiet",
                                          "--threads",
                                          "2",
                                          "--out",
                                          "study"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

TEST_F(DryRunTest, TrainPrintsTheBudget) {
  const Finished text = RunPlumb(TrainArguments("run", 40, {"--dry-run"}));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"parameters", "memory of a training step", "peak", "available", "step ",
                           "40 steps, about", "1 checkpoint of", "Nothing was written to run"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  EXPECT_FALSE(Exists("run"));

  const Finished said = RunPlumb(TrainArguments("run", 40, {"--dry-run", "--json"}));
  const json dry = json::parse(said.out);
  EXPECT_EQ(dry["status"], "dry-run");
  EXPECT_EQ(dry["max_steps"], 40);
  EXPECT_GT(dry["step"]["seconds"], 0.0);
  EXPECT_GT(dry["step"]["tokens"], 0);
  EXPECT_DOUBLE_EQ(dry["seconds"].get<double>(), 40 * dry["step"]["seconds"].get<double>());
  EXPECT_GT(dry["memory"]["total"], 4 * dry["parameters"].get<int64_t>());
  EXPECT_FALSE(Exists("run"));
}

TEST_F(DryRunTest, TrainFailsLikeTheRun) {
  ASSERT_EQ(RunPlumb(TrainArguments("run", 2)).exit_code, 0);
  const Finished again = RunPlumb(TrainArguments("run", 2, {"--dry-run"}));
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("already holds a run"));
  const Finished resumed = RunPlumb(TrainArguments("run", 4, {"--dry-run", "--resume"}));
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_THAT(resumed.err, HasSubstr("--resume"));
}

TEST_F(DryRunTest, ComparePrintsTheBudget) {
  const Finished text = RunPlumb(CompareArguments({"--dry-run"}));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"pre, n_layer=1", "post, n_layer=2", "12 runs; 2 at a time", "time",
                           "available", "Nothing was written to study"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  EXPECT_FALSE(Exists("study"));

  const json all = json::parse(RunPlumb(CompareArguments({"--dry-run", "--json"})).out);
  EXPECT_EQ(all["runs"], 12);
  EXPECT_EQ(all["ended"], 0);
  EXPECT_EQ(all["groups"].size(), 4u);
  ASSERT_EQ(RunPlumb(CompareArguments({})).exit_code, 0);
  const json ended = json::parse(RunPlumb(CompareArguments({"--dry-run", "--json"})).out);
  EXPECT_EQ(ended["ended"], 12);
  EXPECT_EQ(ended["seconds"], 0.0);
  EXPECT_EQ(ended["disk"]["total"], 0);
}

#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer needs terabytes of the address space
// The activations take gigabytes and the address space is one, so neither command starts.
TEST_F(DryRunTest, CompareTimesOnlyTrainedRuns) {
  const Finished result =
      RunPlumb(CompareArguments({"--choosing-seeds", "1", "--dry-run", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json dry = json::parse(result.out);
  EXPECT_EQ(dry["runs"], 8);  // of 12: the other seeds in one of the two cells
  const auto seconds = [&dry](size_t i) { return dry["groups"][i]["seconds"].get<double>(); };
  EXPECT_NEAR(dry["seconds"].get<double>() * dry["runs_at_a_time"].get<double>(),
              3 * (seconds(0) + seconds(2)) + seconds(1) + seconds(3), 1e-9);
}

TEST_F(DryRunTest, RefusesRunsThatDoNotFit) {
  const ResourceLimit limit{RLIMIT_AS, uint64_t{1} << 30};
  const Finished trained =
      RunPlumb(TrainArguments("run", 4, {"--set", "train.batch_size=80000"}), limit);
  EXPECT_EQ(trained.exit_code, 1);
  for (const char* part : {"training takes", "ulimit -v", "a smaller train.batch_size"}) {
    EXPECT_THAT(trained.err, HasSubstr(part));
  }
  EXPECT_FALSE(Exists("run"));
  const Finished compared = RunPlumb(CompareArguments({"--set", "train.batch_size=80000"}), limit);
  EXPECT_EQ(compared.exit_code, 1);
  EXPECT_THAT(compared.err, HasSubstr("training takes"));
  EXPECT_FALSE(Exists("study"));
}

// Two concurrent runs of this size do not fit.
TEST_F(DryRunTest, MemoryLimitsConcurrentRuns) {
  const std::vector<std::string> arguments = CompareArguments({"--set", "train.batch_size=4000"});
  const ResourceLimit limit{RLIMIT_AS, uint64_t{384} << 20};
  std::vector<std::string> dry = arguments;
  dry.insert(dry.end(), {"--dry-run", "--json"});
  const Finished said = RunPlumb(dry, limit);
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(json::parse(said.out)["runs_at_a_time"], 1);
  EXPECT_EQ(json::parse(said.out)["threads_of_a_run"], 2);
  const Finished compared = RunPlumb(arguments, limit);
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
}
#endif

}  // namespace
}  // namespace plumb::cli
