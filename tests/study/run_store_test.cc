// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/run_store.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/app/study/run_record.h"
#include "runtime/base/file.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

const std::string kHash(64, 'a');

// Writes a run that has ended, with a file in a directory.
std::string WriteRun(ScratchDir* dir, const std::string& name, int64_t step) {
  const std::string run = dir->File(name);
  EXPECT_TRUE(MakeDirectories(run + "/checkpoints/step-1").ok());
  EXPECT_TRUE(WriteFileAtomically(run + "/checkpoints/step-1/state.json", name).ok());
  RunResult result;
  result.step = step;
  EXPECT_TRUE(WriteRunResult(run, result).ok());
  return run;
}

TEST(RunStoreTest, StoresARunOnceAndReturnsItWhole) {
  ScratchDir dir;
  const std::string first = WriteRun(&dir, "first", 3), second = WriteRun(&dir, "second", 4);
  const absl::StatusOr<RunStore> store = RunStore::Open(dir.File("store"));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_FALSE(store->Has(kHash));
  ASSERT_TRUE(store->Put(kHash, first).ok());
  ASSERT_TRUE(store->Put(kHash, second).ok());
  EXPECT_TRUE(store->Has(kHash));
  EXPECT_FALSE(store->Has(std::string(64, 'b')));

  const std::string copy = WriteRun(&dir, "copy", 9);
  ASSERT_TRUE(RunStore::Open(dir.File("store"))->Fetch(kHash, copy).ok());
  EXPECT_EQ((*ReadRunResult(copy))->step, 3);
  EXPECT_EQ(*ReadFile(copy + "/checkpoints/step-1/state.json", 100), "first");
}

TEST(RunStoreTest, RefusesADirectoryWithOtherFiles) {
  ScratchDir dir;
  dir.Write("thesis.tex", "");
  EXPECT_TRUE(absl::IsInvalidArgument(RunStore::Open(dir.File(".")).status()));
}

TEST(RunStoreTest, ManyWritersStoreTheSameRun) {
  ScratchDir dir;
  const std::string run = WriteRun(&dir, "run", 3);
  std::vector<std::thread> writers;
  std::vector<absl::Status> ended(8);
  for (size_t i = 0; i < ended.size(); ++i) {
    writers.emplace_back([&, i] {
      const absl::StatusOr<RunStore> store = RunStore::Open(dir.File("store"));
      ended[i] = store.ok() ? store->Put(kHash, run) : store.status();
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (const absl::Status& status : ended) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ListDirectory(dir.File("store/aa"))->size(), 1);
}

}  // namespace
}  // namespace plumb
