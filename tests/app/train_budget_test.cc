// SPDX-License-Identifier: Apache-2.0
// A run that exceeds the memory budget or the free disk space is refused before it writes anything.
// A dry run reports the requirements.
#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "runtime/session/train_memory.h"
#include "tests/app/test_run.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using testing::Not;

// File system with a given number of free bytes.
class FullDisk : public FileSystem {
 public:
  explicit FullDisk(int64_t bytes) : bytes_(bytes) {}
  int FreeSpace(const char*, int64_t* bytes) override {
    *bytes = bytes_;
    return bytes_ < 0 ? -1 : 0;
  }

 private:
  const int64_t bytes_;
};

int64_t BytesIn(const std::string& directory) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

TEST(TrainBudgetTest, DryRunTakesStepsAndWritesNothing) {
  const TestRun test;
  TrainRequest request = test.Request(test.out());
  request.dry_run = true;
  request.probe.every = 1;
  const auto run = test.Open(request);
  ASSERT_NE(run, nullptr);
  const std::vector<double> losses = TestRun::Steps(run.get(), 100);
  EXPECT_EQ(losses.size(), 8u);
  EXPECT_FALSE(FileExists(test.out()));
  EXPECT_EQ(run->SaveCheckpoint().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TestRun::Steps(test.Open(test.Request(test.out())).get(), 100), losses);
}

TEST(TrainBudgetTest, DiskEstimateEqualsTheFiles) {
  struct Case {
    const char *steps, *interval, *keep;
    int64_t checkpoints;  // number that exist at a time
  };
  for (const Case& c : {Case{"6", "0", "2", 1}, Case{"6", "2", "0", 3}, Case{"6", "2", "3", 3},
                        Case{"6", "2", "2", 3}, Case{"6", "1", "1", 2}}) {
    SCOPED_TRACE(absl::StrCat(c.steps, " ", c.interval, " ", c.keep));
    const TestRun test;
    TrainRequest request = test.Request(test.out());
    request.train_overrides = {{"max_steps", c.steps},
                               {"checkpoint_interval", c.interval},
                               {"keep_checkpoints", c.keep},
                               {"checkpoint_seconds", "0"}};
    const auto run = test.Open(request);
    ASSERT_NE(run, nullptr);
    const TrainingDisk& disk = run->info().disk;
    EXPECT_EQ(disk.checkpoints, c.checkpoints);
    TestRun::Steps(run.get(), 100);
    const int64_t written = BytesIn(absl::StrCat(test.out(), "/checkpoints/step-000006"));
    // Next to its tensors a checkpoint holds headers and its state.
    EXPECT_LE(disk.checkpoint, written);
    EXPECT_GE(disk.checkpoint + 16384, written);
  }
}

TEST(TrainBudgetTest, AFullDiskRefusesTheRun) {
  const TestRun test;
  TrainRequest request = test.Request(test.out());
  request.dry_run = true;
  const auto dry = test.Open(request);
  ASSERT_NE(dry, nullptr);
  const int64_t needed = dry->info().disk.total;
  request.dry_run = false;
  {
    FullDisk disk(needed - 1);
    const ScopedFileSystem scoped(&disk);
    const absl::Status status = test.OpenError(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the disk has"));
    EXPECT_FALSE(FileExists(test.out()));
  }
  for (const int64_t enough : {needed, int64_t{-1}}) {  // -1: the free space is unknown
    FullDisk disk(enough);
    const ScopedFileSystem scoped(&disk);
    const auto run = test.Open(request);
    ASSERT_NE(run, nullptr);
    TestRun::Steps(run.get(), 100);
    std::filesystem::remove_all(test.out());
  }
}

TEST(TrainBudgetTest, MemoryShortageSuggestsSettings) {
  TrainMemory memory;
  memory.weights = 100 << 20;
  memory.workspace = 900 << 20;
  TrainSpec spec;
  spec.batch_size = 8;
  MemoryLimit limit{2000 << 20, 1000 << 20, "ulimit -v"};
  EXPECT_TRUE(CheckFits(memory, spec, limit).ok());
  --limit.available;
  const std::string batch(CheckFits(memory, spec, limit).message());
  EXPECT_THAT(batch, HasSubstr("takes 1000 MiB"));
  EXPECT_THAT(batch, HasSubstr("ulimit -v"));
  EXPECT_THAT(batch, HasSubstr("batch_size"));
  EXPECT_THAT(batch, HasSubstr("recompute"));
  spec.batch_size = 1;
  spec.recompute_blocks = true;
  const std::string sequence(CheckFits(memory, spec, limit).message());
  EXPECT_THAT(sequence, Not(HasSubstr("batch_size")));
  EXPECT_THAT(sequence, Not(HasSubstr("recompute")));
  std::swap(memory.weights, memory.workspace);
  EXPECT_THAT(std::string(CheckFits(memory, spec, limit).message()),
              Not(HasSubstr("context_length")));
}

TEST(TrainBudgetTest, MemoryIsThatOfTheLongestStep) {
  const TestRun test;
  const auto run = test.Open(test.Request(""));
  ASSERT_NE(run, nullptr);
  const TrainingMemory& memory = run->info().memory;
  EXPECT_EQ(memory.seq, 10);  // the longest documents with their end token fill the context
  EXPECT_EQ(memory.batch, 2);
  EXPECT_GT(memory.validation, 0);
  EXPECT_EQ(memory.total, memory.weights + memory.gradients + memory.moments + memory.norm_states +
                              memory.inputs + memory.workspace + memory.validation);
  EXPECT_GT(run->info().memory_limit.available, memory.total);
}

}  // namespace
}  // namespace plumb
