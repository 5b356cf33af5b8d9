// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/study/run_record.h"
#include "runtime/train/run_identity.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

RunIdentity Identity(uint64_t seed) {
  RunInputs inputs;
  inputs.data = "d";
  inputs.tokenizer = "t";
  inputs.seed = seed;
  return RunIdentity::Of(inputs);
}

class RunStoreTest : public testing::Test {
 protected:
  // Writes a run that has ended, with a file in a directory.
  std::string WriteRun(const std::string& name, uint64_t seed, int64_t step) {
    const std::string run = dir_.File(name);
    EXPECT_TRUE(MakeDirectories(run + "/checkpoints/step-1").ok());
    EXPECT_TRUE(WriteFileAtomically(run + "/checkpoints/step-1/state.json", name).ok());
    EXPECT_TRUE(WriteFileAtomically(run + "/run.json", Identity(seed).InRunJson("{}")).ok());
    RunResult result;
    result.step = step;
    EXPECT_TRUE(WriteRunResult(run, result).ok());
    return run;
  }
  RunStore Store() const { return RunStore::Open(dir_.File("store")).value(); }
  std::string Entry(uint64_t seed) const {
    const std::string hash = Identity(seed).Hash();
    return absl::StrCat(dir_.File("store"), "/", hash.substr(0, 2), "/", hash.substr(2));
  }
  absl::StatusOr<bool> Fetch(uint64_t seed) {
    return Store().Fetch(Identity(seed).Hash(), dir_.File("copy"));
  }

  ScratchDir dir_;
};

TEST_F(RunStoreTest, StoresARunOnce) {
  ASSERT_FALSE(Fetch(1).value());
  ASSERT_TRUE(Store().Put(WriteRun("first", 1, 3)).ok());
  ASSERT_TRUE(Store().Put(WriteRun("second", 1, 4)).ok());
  EXPECT_FALSE(Fetch(2).value());
  WriteRun("copy", 1, 9);
  ASSERT_TRUE(Fetch(1).value());
  EXPECT_EQ((*ReadRunResult(dir_.File("copy")))->step, 3);
  EXPECT_EQ(*ReadFile(dir_.File("copy/checkpoints/step-1/state.json"), 100), "first");
}

TEST_F(RunStoreTest, ReplacesDamagedEntries) {
  const std::string run = WriteRun("run", 1, 3);
  const std::vector<std::function<void(const std::string&)>> damages = {
      [](const std::string& entry) {
        (void)WriteFileAtomically(entry + "/checkpoints/step-1/state.json", "ruN");
      },
      [](const std::string& entry) { (void)WriteFileAtomically(entry + "/result.json", ""); },
      [](const std::string& entry) { (void)RemoveTree(entry + "/result.json"); },
      [](const std::string& entry) { (void)WriteFileAtomically(entry + "/entry.json", "{\"fi"); },
      [](const std::string& entry) {  // links are not followed, even to the same bytes
        std::filesystem::rename(entry + "/result.json", entry + "/elsewhere");
        std::filesystem::create_symlink("elsewhere", entry + "/result.json");
      },
      [](const std::string& entry) {
        std::filesystem::rename(entry + "/checkpoints", entry + "/elsewhere");
        std::filesystem::create_directory_symlink("elsewhere", entry + "/checkpoints");
      }};
  for (size_t i = 0; i < damages.size(); ++i) {
    ASSERT_TRUE(Store().Put(run).ok());
    damages[i](Entry(1));
    const absl::StatusOr<bool> fetched = Fetch(1);
    EXPECT_TRUE(absl::IsDataLoss(fetched.status())) << i << ": " << fetched.status();
    EXPECT_THAT(std::string(fetched.status().message()), testing::HasSubstr(Entry(1)));
    EXPECT_FALSE(FileExists(dir_.File("copy"))) << i;
    EXPECT_FALSE(Fetch(1).value()) << i;
  }
  // Half of a deletion leaves no entry.json.
  ASSERT_TRUE(Store().Put(run).ok());
  ASSERT_TRUE(RemoveTree(Entry(1) + "/entry.json").ok());
  EXPECT_FALSE(Fetch(1).value());
  ASSERT_TRUE(Store().Put(run).ok());
  EXPECT_TRUE(Fetch(1).value());
}

TEST_F(RunStoreTest, RefusesAnEntryOfAnotherRun) {
  ASSERT_TRUE(Store().Put(WriteRun("run", 1, 3)).ok());
  ASSERT_TRUE(MakeDirectories(ParentDirectory(Entry(2))).ok());
  std::filesystem::rename(Entry(1), Entry(2));
  EXPECT_TRUE(absl::IsDataLoss(Fetch(2).status()));
}

TEST_F(RunStoreTest, RunsOfUnknownInputsAreNotStored) {
  RunInputs inputs;
  inputs.norms = {{"org.example.mine", ""}};
  const std::string run = WriteRun("run", 1, 3);
  for (const std::string& json : {std::string("{}"), RunIdentity::Of(inputs).InRunJson("{}")}) {
    ASSERT_TRUE(WriteFileAtomically(run + "/run.json", json).ok());
    EXPECT_TRUE(Store().Put(run).ok());
  }
  EXPECT_EQ(ListDirectory(dir_.File("store"))->size(), 1);  // plumb-store.txt
}

TEST_F(RunStoreTest, OpenRemovesTemporariesOfKilledProcesses) {
  // A process that was killed while it created the store leaves a temporary marker alone.
  ASSERT_TRUE(MakeDirectories(dir_.File("store/incoming/1-0/run")).ok());
  dir_.Write("store/incoming/1-0/run/result.json", "");
  ASSERT_TRUE(absl::IsInvalidArgument(RunStore::Open(dir_.File("store")).status()));
  ASSERT_TRUE(RemoveTree(dir_.File("store/incoming")).ok());
  dir_.Write("store/plumb-store.txt.tmp.123", "");
  ASSERT_TRUE(RunStore::Open(dir_.File("store")).ok());
  ASSERT_TRUE(MakeDirectories(dir_.File("store/incoming/1-0/run")).ok());
  dir_.Write("store/incoming/1-0/run/result.json", "");
  ASSERT_TRUE(RunStore::Open(dir_.File("store")).ok());
  EXPECT_TRUE(ListDirectory(dir_.File("store/incoming"))->empty());
}

TEST_F(RunStoreTest, RefusesADirectoryWithOtherFiles) {
  dir_.Write("thesis.tex", "");
  EXPECT_TRUE(absl::IsInvalidArgument(RunStore::Open(dir_.File(".")).status()));
}

TEST_F(RunStoreTest, ManyWritersStoreTheSameRun) {
  const std::string run = WriteRun("run", 1, 3);
  std::vector<std::thread> writers;
  std::vector<absl::Status> ended(8);
  for (size_t i = 0; i < ended.size(); ++i) {
    writers.emplace_back([&, i] {
      const absl::StatusOr<RunStore> store = RunStore::Open(dir_.File("store"));
      ended[i] = store.ok() ? store->Put(run) : store.status();
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (const absl::Status& status : ended) EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Fetch(1).value());
  EXPECT_TRUE(ListDirectory(dir_.File("store/incoming"))->empty());
}

}  // namespace
}  // namespace plumb
