// SPDX-License-Identifier: Apache-2.0
// Studies that are stopped from outside, at an arbitrary moment, and resumed.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CompareResumeTest : public PlumbTest {
 protected:
  static std::vector<std::string> Arguments(const std::string& out, int steps) {
    return {"compare",
            "pre.pbtxt",
            "post.pbtxt",
            "--data",
            "names.txt",
            "--train",
            "train.pbtxt",
            "--set",
            "train.max_steps=" + std::to_string(steps),
            "--set",
            "train.checkpoint_interval=10",
            "--samples",
            "2",
            "--threads",
            "2",
            "--out",
            out};
  }

  // Signals the study when the run `run` has `run_steps` steps.
  Finished SignalAfter(const std::string& run, size_t run_steps, int steps, int signal) {
    PlumbProcess process(directory(), Arguments("study", steps));
    WaitForSteps("study/runs/" + run, run_steps, &process);
    process.Signal(signal);
    return process.Wait();
  }

  void ExpectSameAsUnbroken(int steps) {
    const Finished resumed = RunPlumb(Arguments("study", steps));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    const Finished unbroken = RunPlumb(Arguments("unbroken", steps));
    ASSERT_EQ(unbroken.exit_code, 0) << unbroken.err;
    for (const char* file : {"table.csv", "table.md", "report.json"}) {
      const std::string name = file;
      EXPECT_FALSE(Read("unbroken/" + name).empty()) << name;
      EXPECT_EQ(Read("study/" + name), Read("unbroken/" + name)) << name;
    }
  }
};

TEST_F(CompareResumeTest, KilledStudyEndsInTheSameBytes) {
  constexpr int kSteps = 300;
  EXPECT_EQ(SignalAfter("pre-seed1", 3, kSteps, SIGKILL).signal, SIGKILL);
  EXPECT_FALSE(Exists("study/table.csv"));
  EXPECT_EQ(SignalAfter("pre-seed2", 25, kSteps, SIGKILL).signal, SIGKILL);
  EXPECT_EQ(SignalAfter("post-seed3", 120, kSteps, SIGKILL).signal, SIGKILL);
  EXPECT_FALSE(Exists("study/table.csv"));
  ExpectSameAsUnbroken(kSteps);
}

TEST_F(CompareResumeTest, CtrlCLeavesCheckpointsAndExitsWith130) {
  constexpr int kSteps = 400;
  const Finished result = SignalAfter("post-seed1", 7, kSteps, SIGINT);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("interrupted"), HasSubstr("plumb compare pre.pbtxt")));
  EXPECT_FALSE(Exists("study/table.csv"));
  EXPECT_TRUE(Exists("study/runs/post-seed1/latest"));
  ExpectSameAsUnbroken(kSteps);
}

TEST_F(CompareResumeTest, RepairsDamagedRuns) {
  ASSERT_EQ(RunPlumb(Arguments("study", 30)).exit_code, 0);
  Write("study/runs/pre-seed1/result.json", "{");
  Write("study/runs/pre-seed2/result.json", "");
  Write("study/runs/post-seed1/result.json", "");
  Write("study/runs/post-seed1/checkpoints/step-000030/state.json", "{}");
  ExpectSameAsUnbroken(30);
}

TEST_F(CompareResumeTest, GrownStudyTrainsMissingRuns) {
  const std::vector<std::string> recipe = {"--data",      "names.txt", "--train",
                                           "train.pbtxt", "--set",     "train.max_steps=20",
                                           "--samples",   "1"};
  const auto compare = [&](const std::string& out, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "compare");
    arguments.insert(arguments.end(), recipe.begin(), recipe.end());
    arguments.insert(arguments.end(), {"--out", out});
    return RunPlumb(arguments);
  };
  const std::vector<std::string> whole = {
      "pre.pbtxt", "post.pbtxt", "--seeds", "3", "--grid", "train.learning_rate=0.001,0.01"};
  ASSERT_EQ(compare("unbroken", whole).exit_code, 0);
  ASSERT_EQ(compare("study", {"post.pbtxt", "--seeds", "2", "--grid", "train.learning_rate=0.01"})
                .exit_code,
            0);
  const Finished grown = compare("study", whole);
  ASSERT_EQ(grown.exit_code, 0) << grown.err;
  EXPECT_THAT(grown.err, AllOf(HasSubstr("2 of 12 runs were done before and are reused"),
                               HasSubstr("; 12 of 12"),
                               testing::Not(HasSubstr("post, learning_rate=0.01, seed 2"))));
  for (const char* file :
       {"study.pbtxt", "runs.csv", "table.csv", "table.md", "report.json", "report.html"}) {
    const std::string name = file;
    EXPECT_FALSE(Read("unbroken/" + name).empty()) << name;
    EXPECT_EQ(ReadWithoutTimes("study/" + name), ReadWithoutTimes("unbroken/" + name)) << name;
  }
}

TEST_F(CompareResumeTest, RefusesADirectoryOfAnotherStudy) {
  ASSERT_EQ(RunPlumb(Arguments("study", 30)).exit_code, 0);
  const std::string table = Read("study/table.csv");
  const Finished other = RunPlumb(Arguments("study", 40));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("recipe: max_steps: 30, now 40"));
  // The same arguments with a changed model are another study.
  Write("post.pbtxt", Read("pre.pbtxt") + "name: \"post\"\n");
  const Finished changed = RunPlumb(Arguments("study", 30));
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_THAT(changed.err,
              AllOf(HasSubstr("post-seed1: model: "), testing::Not(HasSubstr("pre-seed"))));
  EXPECT_EQ(Read("study/table.csv"), table);
  std::vector<std::string> again = Arguments("study", 30);
  again.push_back("--overwrite");
  const Finished overwritten = RunPlumb(again);
  ASSERT_EQ(overwritten.exit_code, 0) << overwritten.err;
  EXPECT_THAT(overwritten.err, HasSubstr("post-seed1: had other inputs, and is trained again"));
  EXPECT_NE(Read("study/table.csv"), table);
}

}  // namespace
}  // namespace plumb::cli
