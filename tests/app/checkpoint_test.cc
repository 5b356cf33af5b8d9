// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  // Writes a checkpoint in which every value of every tensor is `value`.
  absl::Status Write(int64_t step, int keep, float value = 1, const std::string& state = "{}") {
    const std::vector<float> data(12, value);
    const std::vector<TensorToWrite> model = {{"w", F32({3, 4}), data.data()}};
    const std::vector<TensorToWrite> optimizer = {{"w.m", F32({3, 4}), data.data()},
                                                  {"w.v", F32({3, 4}), data.data()}};
    CheckpointContents contents;
    contents.step = step;
    contents.model = model;
    contents.optimizer = optimizer;
    contents.state = state;
    contents.metadata = {{"seed", "1"}};
    return WriteCheckpoint(run_, contents, keep);
  }
  std::vector<std::string> Names() { return *ListDirectory(JoinPath(run_, "checkpoints")); }
  std::string GetPath(absl::string_view step, absl::string_view file = "") {
    const std::string directory = JoinPath(JoinPath(run_, "checkpoints"), step);
    return file.empty() ? directory : JoinPath(directory, file);
  }
  // Returns the first value of the latest checkpoint.
  absl::StatusOr<float> LatestValue() {
    const absl::StatusOr<std::string> directory = FindLatestCheckpoint(run_);
    if (!directory.ok()) return directory.status();
    const absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(*directory);
    if (!checkpoint.ok()) return checkpoint.status();
    const absl::StatusOr<SafetensorsFile> model = OpenCheckpointModel(*checkpoint);
    if (!model.ok()) return model.status();
    std::vector<float> data(12);
    const absl::Status status = model->Read("w", F32({3, 4}), data.data());
    if (!status.ok()) return status;
    return data[0];
  }

  ScratchDir dir_;
  std::string run_ = dir_.File("run");
};

TEST_F(CheckpointTest, ReadsTheCheckpointThatWasWritten) {
  ASSERT_TRUE(Write(500, 2, 7, R"({"seed": 18446744073709551615, "lr": 0.1, "name": "a"})").ok());
  EXPECT_EQ(*ReadFile(JoinPath(run_, "latest")), "step-000500\n");
  EXPECT_THAT(*ListDirectory(GetPath("step-000500")),
              ElementsAre("model.safetensors", "optimizer.safetensors", "state.json"));
  const absl::StatusOr<std::string> directory = FindLatestCheckpoint(run_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(*directory, GetPath("step-000500"));
  const absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(*directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->step, 500);
  EXPECT_EQ(checkpoint->state, R"({"lr":0.1,"name":"a","seed":18446744073709551615})");
  EXPECT_EQ(checkpoint->files.size(), 2u);
  const absl::StatusOr<SafetensorsFile> optimizer = OpenCheckpointOptimizer(*checkpoint);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_NE(optimizer->Find("w.v"), nullptr);
  EXPECT_EQ(optimizer->metadata().at("seed"), "1");
  EXPECT_EQ(*LatestValue(), 7);
}

TEST_F(CheckpointTest, AModelAloneIsACheckpoint) {
  const float value = 1;
  const std::vector<TensorToWrite> model = {{"w", F32({1}), &value}};
  CheckpointContents contents;
  contents.model = model;
  ASSERT_TRUE(WriteCheckpoint(run_, contents, 0).ok());
  const absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(GetPath("step-000000"));
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_TRUE(OpenCheckpointModel(*checkpoint).ok());
  const absl::Status status = OpenCheckpointOptimizer(*checkpoint).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("was written without optimizer.safetensors"));
}

TEST_F(CheckpointTest, KeepsTheNewestCheckpoints) {
  for (int64_t step : {100, 200, 300, 400}) ASSERT_TRUE(Write(step, 2).ok());
  EXPECT_THAT(Names(), ElementsAre("step-000300", "step-000400"));
  ASSERT_TRUE(Write(1234567, 0).ok());
  EXPECT_THAT(Names(), ElementsAre("step-000300", "step-000400", "step-1234567"));
  // Checkpoints are ordered by number, not by name.
  ASSERT_TRUE(Write(1234568, 1).ok());
  EXPECT_THAT(Names(), ElementsAre("step-1234568"));
}

TEST_F(CheckpointTest, KeepsAnEarlierStepJustWritten) {
  for (int64_t step : {100, 200, 300}) ASSERT_TRUE(Write(step, 0).ok());
  ASSERT_TRUE(Write(150, 1, 5).ok());
  EXPECT_THAT(Names(), ElementsAre("step-000150", "step-000200", "step-000300"));
  EXPECT_EQ(*LatestValue(), 5);
}

TEST_F(CheckpointTest, TheSameStepIsReplaced) {
  ASSERT_TRUE(Write(100, 2, 1).ok());
  ASSERT_TRUE(Write(100, 2, 2).ok());
  EXPECT_THAT(Names(), ElementsAre("step-000100"));
  EXPECT_EQ(*LatestValue(), 2);
}

TEST_F(CheckpointTest, SurvivesAKillWhileWriting) {
  ASSERT_TRUE(Write(100, 2, 1).ok());
  // One writer was killed after half a model, and one checkpoint was half deleted.
  ASSERT_TRUE(MakeDirectories(GetPath(".tmp-step-000200")).ok());
  ScratchDir::Overwrite(GetPath(".tmp-step-000200", "model.safetensors"), "half");
  ASSERT_TRUE(MakeDirectories(GetPath(".tmp-delete-step-000050")).ok());
  EXPECT_EQ(*LatestValue(), 1);
  ASSERT_TRUE(Write(200, 2, 2).ok());
  EXPECT_THAT(Names(), ElementsAre("step-000100", "step-000200"));
  EXPECT_EQ(*LatestValue(), 2);
}

TEST_F(CheckpointTest, SurvivesAKillBeforeLatestMoves) {
  ASSERT_TRUE(Write(100, 0, 1).ok());
  const std::string latest = *ReadFile(JoinPath(run_, "latest"));
  ASSERT_TRUE(Write(200, 0, 2).ok());
  ScratchDir::Overwrite(JoinPath(run_, "latest"), latest);
  EXPECT_EQ(*LatestValue(), 1);  // the checkpoint that `latest` names
  std::filesystem::remove(JoinPath(run_, "latest"));
  EXPECT_EQ(*LatestValue(), 2);  // without `latest`, the newest complete checkpoint
}

TEST_F(CheckpointTest, MissingCheckpointIsNotFound) {
  const absl::Status status = FindLatestCheckpoint(run_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(run_, ": has no checkpoint")));
  ASSERT_TRUE(MakeDirectories(GetPath(".tmp-step-000200")).ok());
  EXPECT_EQ(FindLatestCheckpoint(run_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, InvalidLatestListsCheckpoints) {
  ASSERT_TRUE(Write(100, 0).ok());
  ASSERT_TRUE(Write(200, 0).ok());
  for (absl::string_view name : {"step-000300\n", "../../etc", "", "step-100", "step-0000100"}) {
    ScratchDir::Overwrite(JoinPath(run_, "latest"), name);
    const absl::Status status = FindLatestCheckpoint(run_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("there are step-000100, step-000200"));
  }
}

TEST_F(CheckpointTest, DetectsEveryAlteredByte) {
  ASSERT_TRUE(Write(100, 0, 1, R"({"a": 1.5})").ok());
  ASSERT_TRUE(LatestValue().ok());
  for (const char* file : {"model.safetensors", "state.json"}) {
    const std::string path = GetPath("step-000100", file);
    const std::string whole = *ReadFile(path);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string altered = whole;
      altered[i] = static_cast<char>(altered[i] ^ 0x04);
      ScratchDir::Overwrite(path, altered);
      const absl::Status status = LatestValue().status();
      ASSERT_FALSE(status.ok()) << file << " byte " << i;
      ASSERT_THAT(std::string(status.message()), HasSubstr(path));
    }
    ScratchDir::Overwrite(path, whole);
  }
  EXPECT_TRUE(LatestValue().ok());
}

TEST_F(CheckpointTest, DamageNamesTheFile) {
  ASSERT_TRUE(Write(100, 0).ok());
  const std::string path = GetPath("step-000100", "optimizer.safetensors");
  const std::string whole = *ReadFile(path);
  const absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(GetPath("step-000100"));
  ASSERT_TRUE(checkpoint.ok());

  ScratchDir::Overwrite(path, whole.substr(0, whole.size() - 1));
  absl::Status status = OpenCheckpointOptimizer(*checkpoint).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            absl::StrCat(path, ": has ", whole.size() - 1, " bytes, but state.json records ",
                         whole.size(), "; was it cut or replaced?"));

  std::string altered = whole;
  altered.back() ^= 1;
  ScratchDir::Overwrite(path, altered);
  status = OpenCheckpointOptimizer(*checkpoint).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("its content was altered"));

  std::filesystem::remove(path);
  status = OpenCheckpointOptimizer(*checkpoint).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is missing, but state.json lists it"));
  EXPECT_TRUE(OpenCheckpointModel(*checkpoint).ok());

  std::filesystem::remove(GetPath("step-000100", "state.json"));
  status = ReadCheckpoint(GetPath("step-000100")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, RefusesStateOfALaterVersion) {
  ASSERT_TRUE(Write(100, 0).ok());
  const std::string path = GetPath("step-000100", "state.json");
  const std::string later =
      absl::StrReplaceAll(*ReadFile(path), {{"\"version\": 1", "\"version\": 2"}});
  ScratchDir::Overwrite(path, later);
  EXPECT_THAT(std::string(ReadCheckpoint(GetPath("step-000100")).status().message()),
              HasSubstr("has version 2; this plumb reads version 1"));
}

TEST_F(CheckpointTest, RefusedWriteLeavesNoFiles) {
  ASSERT_TRUE(Write(100, 0, 1).ok());
  for (const char* state : {"", "[]", "{", "{\"a\":1,\"a\":2}"}) {
    EXPECT_FALSE(Write(200, 0, 2, state).ok()) << state;
  }
  EXPECT_FALSE(Write(-1, 0).ok());
  EXPECT_THAT(Names(), ElementsAre("step-000100"));
  EXPECT_EQ(*LatestValue(), 1);
  // A file cannot be a run directory.
  run_ = dir_.Write("file", "");
  EXPECT_FALSE(Write(100, 0).ok());
}

}  // namespace
}  // namespace plumb
