#include "cli/compare/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/compare/run_files.h"
#include "cli/compare/run_record.h"
#include "cli/compare/study_directory.h"
#include "runtime/tools/file.h"
#include "tests/session/scratch_dir.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A study of one group and three seeds, and directories a and b of its shards.
class MergeTest : public testing::Test {
 protected:
  MergeTest() {
    plan_.out = dir_.File("study");
    plan_.groups.resize(1);
    plan_.groups[0].name = "pre";
    for (const uint64_t seed : {1, 2, 3}) {
      plan_.runs.push_back({0, seed, plan_.out + "/runs/pre-seed" + std::to_string(seed)});
    }
    for (const char* name : {"study", "a", "b"}) EXPECT_TRUE(MakeDirectories(dir_.File(name)).ok());
  }

  std::string Run(const std::string& directory, int seed) const {
    return dir_.File(directory + "/runs/pre-seed" + std::to_string(seed));
  }
  void Train(const std::string& directory, int seed, const std::string& seconds = "1.5",
             const std::string& weights = "weights") const {
    const std::string run = Run(directory, seed);
    ASSERT_TRUE(MakeDirectories(run + "/checkpoints/step-1").ok());
    ScratchDir::Overwrite(run + "/checkpoints/step-1/model.safetensors", weights);
    ScratchDir::Overwrite(run + "/metrics.jsonl",
                          "{\"step\":1,\"loss\":2.5,\"seconds\":" + seconds + ",\"tokens\":4}\n");
    RunResult result;
    result.step = 1;
    ASSERT_TRUE(WriteRunResult(run, result).ok());
  }
  absl::Status Merge() const { return MergeStudies(plan_, {dir_.File("a"), dir_.File("b")}); }

  const ScratchDir dir_;
  Plan plan_;
};

TEST_F(MergeTest, RunsComeTogetherWithAllTheirFiles) {
  Train("a", 1);
  Train("b", 2);
  Train("a", 3);
  ASSERT_TRUE(Merge().ok()) << Merge();
  EXPECT_EQ(FirstDifference(Run("a", 1), Run("study", 1)).value(), "");
  EXPECT_EQ(FirstDifference(Run("b", 2), Run("study", 2)).value(), "");
  EXPECT_FALSE(FileExists(IncomingName(Run("study", 3))));
  EXPECT_TRUE(Merge().ok()) << "what is there already stays";
}

TEST_F(MergeTest, AnInterruptedMergeGoesOn) {
  Train("a", 1);
  Train("b", 2);
  Train("b", 3);
  Train("study", 1);
  ASSERT_TRUE(MakeDirectories(IncomingName(Run("study", 2))).ok());
  ScratchDir::Overwrite(IncomingName(Run("study", 2)) + "/result.json", "half of i");
  ASSERT_TRUE(Merge().ok()) << Merge();
  EXPECT_EQ(FirstDifference(Run("b", 2), Run("study", 2)).value(), "");
  EXPECT_FALSE(FileExists(IncomingName(Run("study", 2))));
}

TEST_F(MergeTest, MissingRunsAreNamedAndNothingIsCopied) {
  Train("a", 1);
  Train("b", 2);
  ASSERT_TRUE(MakeDirectories(Run("b", 3)).ok());
  const absl::Status status = Merge();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("1 of 3 runs"), HasSubstr("pre, seed 3  (run 2; begun in "),
                    Not(HasSubstr("seed 1"))));
  EXPECT_FALSE(FileExists(Run("study", 1)));
}

TEST_F(MergeTest, ARunThatTwoHaveIsToBeTheSameButForItsTimes) {
  for (const int seed : {1, 2, 3}) Train("a", seed);
  Train("b", 2, "2.5");
  EXPECT_TRUE(Merge().ok()) << Merge();
  Train("b", 3, "1.5", "other weights");
  const absl::Status status = Merge();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("checkpoints/step-1/model.safetensors"), HasSubstr("pre, seed 3")));
}

TEST_F(MergeTest, ADamagedRunIsNamed) {
  for (const int seed : {1, 2, 3}) Train("a", seed);
  ScratchDir::Overwrite(Run("a", 2) + "/metrics.jsonl", "");
  const absl::Status status = Merge();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("a/runs/pre-seed2/metrics.jsonl"));
}

TEST_F(MergeTest, ADirectoryInWhichPlumbIsAtWorkIsNotRead) {
  const auto lock = StudyLock::Acquire(dir_.File("b"));
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Merge()));
}

TEST_F(MergeTest, DirectoriesOfDifferentStudiesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(CommonStudyText({dir_.File("a")}).status()));
  dir_.Write("a/study.pbtxt", "seed: 1\nseed: 2\n");
  dir_.Write("b/study.pbtxt", "seed: 1\nseed: 2\n");
  EXPECT_EQ(CommonStudyText({dir_.File("a"), dir_.File("b")}).value(), "seed: 1\nseed: 2\n");
  dir_.Write("b/study.pbtxt", "seed: 1\nseed: 3\n");
  const auto status = CommonStudyText({dir_.File("a"), dir_.File("b")}).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("b/study.pbtxt"), HasSubstr("- seed: 2"), HasSubstr("+ seed: 3")));
}

}  // namespace
}  // namespace plumb::cli
