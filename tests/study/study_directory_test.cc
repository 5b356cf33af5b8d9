// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/study_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_identity.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class StudyDirectoryTest : public testing::Test {
 protected:
  static RunInputs Inputs(uint64_t seed) {
    RunInputs inputs;
    inputs.model = "name: \"a\"\nn_layer: 1\n";
    inputs.recipe = "max_steps: 5\nseed: 1\n";
    inputs.data = "d1";
    inputs.tokenizer = "t1";
    inputs.norms = {{"org.example.mine", "n1"}};
    inputs.seed = seed;
    return inputs;
  }

  // Returns the plan of a study of one model with the seeds 1 to `seeds`.
  StudyPlan Plan(uint64_t seeds) const {
    StudyPlan plan;
    plan.out = dir_.File(".");
    plan.study.add_model("a.pbtxt");
    plan.groups.resize(1);
    plan.groups[0].training.train_text = Inputs(1).recipe;
    plan.groups[0].text = Inputs(1).model;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      plan.seeds.push_back(seed);
      plan.runs.push_back(
          {0, seed, dir_.File(absl::StrCat("runs/a-seed", seed)), RunIdentity::Of(Inputs(seed))});
    }
    return plan;
  }

  // Writes the runs of a plan.
  void WriteRuns(const StudyPlan& plan) const {
    for (const PlanRun& run : plan.runs) {
      ASSERT_TRUE(MakeDirectories(run.directory).ok());
      ASSERT_TRUE(
          WriteFileAtomically(RunJsonPath(run.directory), run.identity.InRunJson("{}")).ok());
      ASSERT_TRUE(WriteFileAtomically(RunTrainPath(run.directory), "max_steps: 5\nseed: 9\n").ok());
    }
  }

  ScratchDir dir_;
};

TEST_F(StudyDirectoryTest, StudiesMayResumeOrGrow) {
  ASSERT_TRUE(ClaimDirectory(Plan(2), false).ok());
  WriteRuns(Plan(2));
  EXPECT_TRUE(ClaimDirectory(Plan(2), false).ok());
  EXPECT_TRUE(ClaimDirectory(Plan(3), false).ok());
  WriteRuns(Plan(3));
  EXPECT_EQ(*ReadFile(dir_.File("study.pbtxt"), 10000), Plan(3).StudyText());
  // Without its runs the conclusion could change without a word.
  for (const bool overwrite : {false, true}) {
    const absl::Status shrunk = ClaimDirectory(Plan(2), overwrite).status();
    EXPECT_TRUE(absl::IsInvalidArgument(shrunk)) << shrunk;
    EXPECT_THAT(std::string(shrunk.message()), HasSubstr("a-seed3"));
  }
}

TEST_F(StudyDirectoryTest, RunsWithOtherInputsAreRetrained) {
  ASSERT_TRUE(ClaimDirectory(Plan(2), false).ok());
  WriteRuns(Plan(2));
  StudyPlan other = Plan(2);
  RunInputs inputs = Inputs(2);
  inputs.norms["org.example.mine"] = "n2";
  inputs.recipe = other.groups[0].training.train_text = "max_steps: 6\nseed: 1\n";
  other.runs[1].identity = RunIdentity::Of(inputs);
  const absl::Status refused = ClaimDirectory(other, false).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("1 of its 2 runs"), HasSubstr("a-seed2"), Not(HasSubstr("a-seed1")),
                    HasSubstr("norm org.example.mine: n1, now n2"),
                    HasSubstr("recipe: max_steps: 5, now 6"), HasSubstr("--overwrite")));
  EXPECT_TRUE(FileExists(other.runs[1].directory));
  EXPECT_THAT(ClaimDirectory(other, true).value(), ElementsAre("a-seed2"));
  EXPECT_TRUE(FileExists(other.runs[0].directory));
  EXPECT_FALSE(FileExists(other.runs[1].directory));
}

TEST_F(StudyDirectoryTest, RunsWithoutAKnownIdentityAreNotReused) {
  ASSERT_TRUE(ClaimDirectory(Plan(1), false).ok());
  StudyPlan plan = Plan(1);
  RunInputs inputs = Inputs(1);
  inputs.norms["org.example.mine"] = "";  // a norm in Python without a version
  plan.runs[0].identity = RunIdentity::Of(inputs);
  WriteRuns(plan);
  EXPECT_THAT(std::string(ClaimDirectory(plan, false).status().message()),
              HasSubstr("norm org.example.mine: has no version"));
  ASSERT_TRUE(WriteFileAtomically(RunJsonPath(plan.runs[0].directory), "{}").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ClaimDirectory(Plan(1), false).status()));
}

TEST_F(StudyDirectoryTest, RefusesRunsWithoutAStudy) {
  std::filesystem::create_directory(dir_.File("runs"));
  EXPECT_TRUE(absl::IsInvalidArgument(ClaimDirectory(Plan(1), true).status()));
}

TEST_F(StudyDirectoryTest, RefusesForeignFiles) {
  for (const char* name : {"report.html", "table.md", "runs.csv"}) {
    const std::string file = dir_.Write(name, "mine");
    const absl::Status status = ClaimDirectory(Plan(1), true).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    std::filesystem::remove(file);
  }
  dir_.Write("notes.txt", "mine");
  EXPECT_TRUE(ClaimDirectory(Plan(1), false).ok());
}

TEST_F(StudyDirectoryTest, LocksTheDirectory) {
  {
    const auto lock = StudyLock::Acquire(dir_.File("study"));
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_TRUE(absl::IsAlreadyExists(StudyLock::Acquire(dir_.File("study")).status()));
    EXPECT_TRUE(std::filesystem::is_empty(dir_.File("study"))) << "no lock file to delete";
  }
  EXPECT_TRUE(StudyLock::Acquire(dir_.File("study")).ok());
}

}  // namespace
}  // namespace plumb
