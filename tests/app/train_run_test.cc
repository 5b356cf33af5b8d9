// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/train_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/app/train_run_fixture.h"

namespace plumb {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(TrainRunTest, WritesTheRunDirectory) {
  const auto run = test_.Open(test_.Request(test_.out()));
  EXPECT_EQ(run->info().max_steps, 8);
  EXPECT_EQ(run->info().first_step, 0);
  EXPECT_EQ(run->info().model_name, "model");
  EXPECT_EQ(run->info().out, test_.out());
  EXPECT_THAT(run->info().data, AllOf(HasSubstr("30 documents"), HasSubstr("10 held out")));
  TestRun::Steps(run.get(), 7);
  EXPECT_FALSE(run->done());
  const auto last = run->Step();
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(run->done());
  EXPECT_EQ(last->step, 8);
  EXPECT_EQ(last->checkpoint, RunFile("checkpoints/step-000008"));
  EXPECT_EQ(run->Step().status().code(), absl::StatusCode::kOutOfRange);
  for (const char* name :
       {"model.pbtxt", "train.pbtxt", "run.json", "tokenizer.json", "metrics.csv", "latest",
        "checkpoints/step-000008/model.safetensors",
        "checkpoints/step-000008/optimizer.safetensors", "checkpoints/step-000008/state.json"}) {
    EXPECT_TRUE(fs::exists(RunFile(name))) << name;
  }
  EXPECT_EQ(Metrics().size(), 8u);
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("max_steps: 8"));
  // The file is self-contained: it includes the formulas of the placement that ships with plumb.
  EXPECT_THAT(Content(RunFile("model.pbtxt")), HasSubstr("x = x + f(norm(x))"));
}

TEST_F(TrainRunTest, WithoutADirectoryNothingIsWritten) {
  const auto run = test_.Open(test_.Request(""));
  EXPECT_EQ(TestRun::Steps(run.get(), 99).size(), 8u);
  EXPECT_EQ(run->SaveCheckpoint().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(test_.out()));
}

TEST_F(TrainRunTest, FilesDoNotChangeLosses) {
  const auto a = test_.Open(test_.Request("")), b = test_.Open(test_.Request(test_.out()));
  EXPECT_EQ(TestRun::Steps(a.get(), 8), TestRun::Steps(b.get(), 8));
}

TEST_F(TrainRunTest, RefusesADirectoryWithARun) {
  Begin(2);
  const std::string before = Content(RunFile("metrics.csv"));
  ExpectError(test_.Request(test_.out()), absl::StatusCode::kAlreadyExists,
              {test_.out(), "--resume"});
  EXPECT_EQ(Content(RunFile("metrics.csv")), before);
}

TEST_F(TrainRunTest, InvalidRequestsAreErrorsWithPlaces) {
  using Code = absl::StatusCode;
  const TrainRequest right = test_.Request(test_.out());
  TrainRequest request = right;
  request.model_path = "";
  ExpectError(request, Code::kInvalidArgument, {"MODEL"});
  request = right;
  request.data_path = test_.dir().File("missing.txt");
  ExpectError(request, Code::kNotFound, {"missing.txt"});
  request = right;
  request.train_path = test_.dir().Write("bad.pbtxt", "max_steps: 8\nbatchsize: 2");
  ExpectError(request, Code::kInvalidArgument, {"bad.pbtxt:2", "batchsize"});
  request = right;
  request.train_overrides = {{"batch_size", "-1"}};
  ExpectError(request, Code::kInvalidArgument, {"batch_size"});
  request = right;
  request.train_overrides = {{"batch_sise", "1"}};
  ExpectError(request, Code::kInvalidArgument, {"batch_sise"});
  request = right;
  request.model_overrides = {{"n_layers", "3"}};
  ExpectError(request, Code::kInvalidArgument, {"model.", "n_layers"});
  request = right;
  request.model_overrides = {{"n_head", "3"}};
  ExpectError(request, Code::kInvalidArgument, {"n_head"});
  request = right;
  request.model_overrides = {{"vocab_size", "3"}};
  ExpectError(request, Code::kInvalidArgument, {"data.txt", "6 tokens", "vocab_size: 3"});
  request = right;
  request.data_path = test_.dir().Write("empty.txt", "");
  ExpectError(request, Code::kInvalidArgument, {"empty.txt"});
  EXPECT_FALSE(fs::exists(test_.out())) << "an error leaves no directory behind";
}

TEST_F(TrainRunTest, VocabularyMayExceedTheData) {
  TrainRequest request = test_.Request("");
  request.model_overrides = {{"vocab_size", "9"}};
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 2).size(), 2u);
}

TEST_F(TrainRunTest, RequestSeedOverridesTheRecipe) {
  TrainRequest request = test_.Request("");
  const std::vector<double> one = TestRun::Steps(test_.Open(request).get(), 3);
  request.train_overrides = {{"seed", "7"}};
  const std::vector<double> seven = TestRun::Steps(test_.Open(request).get(), 3);
  request.seed = 1;
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 3), one);
  EXPECT_NE(seven, one);
}

TEST_F(TrainRunTest, SavesACheckpointAtAnyStep) {
  const auto run = test_.Open(test_.Request(test_.out()));
  EXPECT_EQ(*run->SaveCheckpoint(), RunFile("checkpoints/step-000000"));
  TestRun::Steps(run.get(), 3);
  const auto path = run->SaveCheckpoint();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, RunFile("checkpoints/step-000003"));
  EXPECT_EQ(*run->SaveCheckpoint(), *path);
}

TEST_F(TrainRunTest, ValidationIsMeasuredWhenDueAndOverTheWholeSplit) {
  TrainRequest request = test_.Request(test_.out());
  request.train_overrides = {{"eval_interval", "3"}};
  const auto run = test_.Open(request);
  std::vector<int64_t> measured;
  double last = 0;
  while (!run->done()) {
    const auto step = run->Step();
    ASSERT_TRUE(step.ok()) << step.status();
    if (!step->val_loss.has_value()) continue;
    measured.push_back(step->step);
    last = *step->val_loss;
  }
  EXPECT_THAT(measured, ElementsAre(3, 6, 8));
  const auto loss = run->ValidationLoss();
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(*loss, last);
  EXPECT_GT(*loss, 0.5);
  EXPECT_LT(*loss, 3);
  const auto metrics = ReadMetrics(RunFile("metrics.csv"));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_FALSE(metrics->at(1).val_loss.has_value());
  EXPECT_TRUE(metrics->at(2).val_loss.has_value());
}

TEST_F(TrainRunTest, WithoutAHeldOutSplitThereIsNoValidationLoss) {
  TrainRequest request = test_.Request("");
  request.train_overrides = {{"data.val_fraction", "0"}, {"eval_interval", "1"}};
  const auto run = test_.Open(request);
  EXPECT_FALSE(run->Step()->val_loss.has_value());
  EXPECT_EQ(run->ValidationLoss().status().code(), absl::StatusCode::kInvalidArgument);
}

// A document of one character has two targets: the character and the end.
TEST_F(TrainRunTest, AHeldOutDocumentOfOneCharacterIsMeasured) {
  TrainRequest request = test_.Request("");
  request.data_path = test_.dir().Write("short.txt", "a\nb\n");
  request.train_overrides = {{"data.val_fraction", "0.5"}};
  const auto run = test_.Open(request);
  EXPECT_TRUE(run->ValidationLoss().ok()) << run->ValidationLoss().status();
}

TEST_F(TrainRunTest, DivergenceIsAborted) {
  TrainRequest request = test_.Request(test_.out());
  request.train_overrides = {{"learning_rate", "1e30"}, {"schedule", "CONSTANT"}};
  const auto run = test_.Open(request);
  absl::Status status;
  while (status.ok() && !run->done()) status = run->Step().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("diverged at step"));
  EXPECT_EQ(Metrics().size(), static_cast<size_t>(run->step()));
  EXPECT_TRUE(run->SaveCheckpoint().ok());
}

TEST_F(TrainRunTest, TwoProcessesCannotTrainInOneDirectory) {
  const auto run = test_.Open(test_.Request(test_.out()));
  TestRun::Steps(run.get(), 1);
  EXPECT_FALSE(test_.OpenError(test_.Resume()).ok());
}

TEST_F(TrainRunTest, ACheckpointIsWrittenWhenTimeHasPassed) {
  TrainRequest request = test_.Request(test_.out());
  request.train_overrides = {{"checkpoint_seconds", "1e-9"}};
  EXPECT_EQ(test_.Open(request)->Step()->checkpoint, RunFile("checkpoints/step-000001"));
  fs::remove_all(test_.out());
  for (const char* seconds : {"0", "3600"}) {
    request.train_overrides = {{"checkpoint_seconds", seconds}};
    EXPECT_EQ(test_.Open(request)->Step()->checkpoint, "") << seconds;
    fs::remove_all(test_.out());
  }
}

// The directory of a new run holds files of somebody else.
TEST_F(TrainRunTest, RefusesToOverwriteForeignFiles) {
  for (const char* name : {"model.pbtxt", "train.pbtxt", "tokenizer.json", "run.json",
                           "metrics.csv", "probes.jsonl", "latest", "checkpoints"}) {
    fs::create_directory(test_.out());
    ScratchDir::Overwrite(RunFile(name), "mine\n");
    ScratchDir::Overwrite(RunFile("notes.tmp.1"), "mine\n");
    ExpectError(test_.Request(test_.out()), absl::StatusCode::kAlreadyExists,
                {RunFile(name), "would overwrite"});
    EXPECT_EQ(Content(RunFile(name)), "mine\n");
    fs::remove(RunFile(name));
    EXPECT_NE(test_.Open(test_.Request(test_.out())), nullptr) << "not empty, but not in the way";
    EXPECT_EQ(Content(RunFile("notes.tmp.1")), "mine\n");
    fs::remove_all(test_.out());
  }
  for (const char* root : {"/", "//", "/tmp/.."}) {
    ExpectError(test_.Request(root), absl::StatusCode::kInvalidArgument,
                {"root of the file system"});
  }
}

TEST_F(TrainRunTest, RestartsARunStoppedDuringCreation) {
  Begin(2);
  fs::remove(RunFile("model.pbtxt"));  // the last file to be written
  ScratchDir::Overwrite(RunFile("train.pbtxt.tmp.77"), "half");
  const auto run = test_.Open(test_.Request(test_.out()));
  ASSERT_NE(run, nullptr);
  EXPECT_FALSE(fs::exists(RunFile("train.pbtxt.tmp.77")));
  EXPECT_EQ(TestRun::Steps(run.get(), 99).size(), 8u);
  EXPECT_EQ(Metrics().size(), 8u);
}

TEST_F(TrainRunTest, DeletedDirectoryIsAnError) {
  for (const bool replaced : {false, true}) {
    const auto run = test_.Open(test_.Request(test_.out()));
    TestRun::Steps(run.get(), 2);
    fs::remove_all(test_.out());
    if (replaced) fs::create_directory(test_.out());
    const absl::Status status = run->SaveCheckpoint().status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("was removed or replaced"));
    EXPECT_FALSE(fs::exists(RunFile("checkpoints")));
    fs::remove_all(test_.out());
  }
}

TEST_F(TrainRunTest, RefusesModelsLargerThanMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer aborts on such an allocation";
#endif
  TrainRequest request = test_.Request("");
  request.model_overrides = {{"d_model", "1048576"}, {"n_layer", "40"}};
  EXPECT_THAT(std::string(test_.OpenError(request).message()),
              HasSubstr("more than a process can address"));
  request.model_overrides = {{"d_model", "65536"}, {"n_layer", "40"}};
  const absl::Status status = test_.OpenError(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("training takes"));
}

}  // namespace
}  // namespace plumb
