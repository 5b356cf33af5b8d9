// SPDX-License-Identifier: Apache-2.0
// Tests of runs that continue from a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/app/train_run_fixture.h"

namespace plumb {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(TrainRunTest, ResumeRequiresARun) {
  ExpectError(test_.Resume(), absl::StatusCode::kNotFound, {test_.out()});
  EXPECT_FALSE(fs::exists(test_.out()));
  TrainRequest request = test_.Request("");
  request.resume = true;
  ExpectError(request, absl::StatusCode::kInvalidArgument,
              {"there is no run to resume; name it with --out"});
}

// The run is interrupted after each step and continues from its files.
TEST_F(TrainRunTest, InterruptedRunEndsWithTheSameBits) {
  const std::vector<double> losses = TestRun::Steps(test_.Open(test_.Request("")).get(), 8);
  const TestRun whole;
  TestRun::Steps(whole.Open(whole.Request(whole.out())).get(), 8);
  const char kWeights[] = "checkpoints/step-000008/model.safetensors";
  const char kMoments[] = "checkpoints/step-000008/optimizer.safetensors";
  for (int interrupted : {1, 3, 4, 7}) {
    const TestRun test;
    TrainRequest request = test.Request(test.out());
    request.train_overrides = {{"checkpoint_interval", "3"}};
    EXPECT_EQ(TestRun::Steps(test.Open(request).get(), interrupted),
              std::vector<double>(losses.begin(), losses.begin() + interrupted));
    const int from = interrupted / 3 * 3;  // the last checkpoint or, without one, the start
    const auto run = test.Open(test.Resume());
    EXPECT_EQ(run->step(), from);
    EXPECT_EQ(run->info().first_step, from);
    EXPECT_EQ(TestRun::Steps(run.get(), 99),
              std::vector<double>(losses.begin() + from, losses.end()));
    for (const char* file : {kWeights, kMoments}) {
      EXPECT_EQ(Content(JoinPath(test.out(), file)), Content(JoinPath(whole.out(), file)))
          << file << " interrupted after " << interrupted;
    }
    const auto metrics = ReadMetrics(JoinPath(test.out(), "metrics.csv"));
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    ASSERT_EQ(metrics->size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ((*metrics)[i].step, static_cast<int64_t>(i + 1));
      EXPECT_EQ((*metrics)[i].loss, losses[i]);
    }
  }
}

TEST_F(TrainRunTest, ARunWithFrozenTensorsResumesToTheSameBitsAndKeepsThem) {
  const char kRules[] =
      "max_steps: 8 batch_size: 2 learning_rate: 0.01 checkpoint_interval: 3 ema_decay: 0.5 "
      "data { format: DOCUMENTS val_fraction: 0.25 } "
      "rule { match: 'layers.1.*' } rule { match: '*' freeze: true }";
  TrainRequest request = test_.Request("");
  request.train_path = test_.dir().Write("frozen.pbtxt", kRules);
  const std::vector<double> losses = TestRun::Steps(test_.Open(request).get(), 8);
  ASSERT_EQ(losses.size(), 8u);
  request.out = test_.out();
  TestRun::Steps(test_.Open(request).get(), 5);
  const auto states =
      SafetensorsFile::Open(RunFile("checkpoints/step-000003/optimizer.safetensors"));
  ASSERT_TRUE(states.ok()) << states.status();
  for (const TensorEntry& tensor : states->tensors()) {
    EXPECT_THAT(tensor.name, ::testing::AnyOf(HasSubstr("ema."), HasSubstr("layers.1.")));
  }
  EXPECT_NE(states->Find("ema.head.weight"), nullptr);
  TrainRequest other = test_.Resume();
  other.train_overrides = {{"rule[1].match", "layers.*"}};
  ExpectError(other, absl::StatusCode::kInvalidArgument,
              {"optimizer.safetensors: does not fit the recipe (a run continues with the frozen "
               "tensors and the optimizers that it began with)",
               "missing: m.embedding.token.weight"});
  const auto run = test_.Open(test_.Resume());
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(TestRun::Steps(run.get(), 99), std::vector<double>(losses.begin() + 3, losses.end()));
}

TEST_F(TrainRunTest, ResumeKeepsTheDType) {
  Begin(2, {{"checkpoint_interval", "1"}});
  TrainRequest request = test_.Resume();
  request.train_overrides = {{"dtype", "BF16"}};
  ExpectError(request, absl::StatusCode::kInvalidArgument,
              {"train.dtype: was started with dtype: F32, not dtype: BF16"});
  request.train_overrides = {{"dtype", "F32"}};
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 99).size(), 6u);
}

// The run directory is that of a version whose runs had no dtype.
TEST_F(TrainRunTest, MissingDTypeIsF32) {
  Begin(2, {{"checkpoint_interval", "1"}});
  std::string state = Content(RunFile("run.json"));
  const std::string said = "\"dtype\":\"f32\",";
  const size_t at = state.find(said);
  ASSERT_NE(at, std::string::npos) << state;
  test_.dir().Write("run/run.json", state.erase(at, said.size()));
  EXPECT_EQ(test_.Open(test_.Resume())->info().dtype, "f32");
}

TEST_F(TrainRunTest, MaxStepsMayGrow) {
  Begin(8);
  TrainRequest request = test_.Resume();
  EXPECT_TRUE(test_.Open(request)->done());
  request.train_overrides = {{"max_steps", "10"}};
  const auto run = test_.Open(request);
  EXPECT_EQ(run->step(), 8);
  EXPECT_EQ(TestRun::Steps(run.get(), 99).size(), 2u);
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("max_steps: 10"));
}

TEST_F(TrainRunTest, RefusesFewerStepsThanCompleted) {
  Begin(8);
  TrainRequest request = test_.Resume();
  request.train_overrides = {{"max_steps", "5"}};
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"8 steps", "max_steps 5"});
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("max_steps: 8"));
}

TEST_F(TrainRunTest, RefusesOtherDataModelOrSeed) {
  Begin(4, {{"checkpoint_interval", "2"}});
  using Code = absl::StatusCode;
  TrainRequest request = test_.Resume();
  request.data_path = test_.dir().Write("other.txt", "abc\nde\nedcba\n");
  ExpectError(request, Code::kInvalidArgument, {"other.txt", "not the data"});
  request.data_path = test_.dir().Write("other.txt", "abc\nxyz\n");
  ExpectError(request, Code::kInvalidArgument, {"other.txt:2:1"});
  request = test_.Resume();
  request.model_path = test_.dir().Write("other.pbtxt",
                                         "n_layer: 3 n_head: 2 d_model: 8 context_length: 10\n"
                                         "block { placement: \"pre\" norm: \"rms_norm\" }");
  ExpectError(request, Code::kInvalidArgument, {"other.pbtxt", "not the model"});
  request = test_.Resume();
  request.model_overrides = {{"n_layer", "3"}};
  ExpectError(request, Code::kInvalidArgument, {"model"});
  request = test_.Resume();
  request.seed = 2;
  ExpectError(request, Code::kInvalidArgument, {"seed 1", "2"});
  request = test_.Resume();
  request.train_overrides = {{"seed", "2"}};
  ExpectError(request, Code::kInvalidArgument, {"seed: 1", "seed: 2"});
  // The same model and seed may be given again.
  request = test_.Request(test_.out());
  request.resume = true;
  request.seed = 1;
  const auto run = test_.Open(request);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->step(), 4);
}

TEST_F(TrainRunTest, RefusesOtherDataBeforeTheFirstCheckpoint) {
  Begin(2);
  TrainRequest request = test_.Resume();
  request.data_path = test_.dir().Write("other.txt", "abc\nde\nedcba\n");
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"other.txt", "not the data"});
  request = test_.Resume();
  request.train_overrides = {{"seed", "2"}};
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"seed: 1", "seed: 2"});
  request = test_.Resume();
  request.init = "elsewhere";
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"weights of its own", "elsewhere"});
  const auto run = test_.Open(test_.Resume());
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->step(), 0);
}

TEST_F(TrainRunTest, DamagedCheckpointsAreDataLoss) {
  Begin(8);
  const std::string checkpoint = RunFile("checkpoints/step-000008");
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string path = JoinPath(checkpoint, name);
    const std::string whole = Content(path);
    std::string altered = whole;
    altered[altered.size() / 2] = static_cast<char>(altered[altered.size() / 2] ^ 1);
    for (const std::string& damaged : {whole.substr(0, whole.size() / 2), altered, std::string()}) {
      ScratchDir::Overwrite(path, damaged);
      ExpectError(test_.Resume(), absl::StatusCode::kDataLoss, {name});
    }
    fs::remove(path);
    ExpectError(test_.Resume(), absl::StatusCode::kDataLoss, {name});
    ScratchDir::Overwrite(path, whole);
  }
  EXPECT_TRUE(test_.Open(test_.Resume())->done()) << "whole again";
}

// A job repeats one request until the run is done. The first time it starts the run, with a
// warning.
TEST_F(TrainRunTest, ResumeOrBeginBeginsAMissingRun) {
  TrainRequest request = test_.Request(test_.out());
  request.resume = true;
  const auto run = test_.Open(request);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->step(), 0);
  EXPECT_THAT(test_.runtime()->TakeWarnings(), Contains(HasSubstr("holds no run yet")));
}

TEST_F(TrainRunTest, EditsRequireAcceptEdits) {
  Begin(4, {{"checkpoint_interval", "2"}});
  const std::string train = Content(RunFile("train.pbtxt")),
                    model = Content(RunFile("model.pbtxt"));
  const auto edited = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  ScratchDir::Overwrite(RunFile("train.pbtxt"),
                        edited(train, "learning_rate: 0.01", "learning_rate: 0.5"));
  ExpectError(test_.Resume(), absl::StatusCode::kInvalidArgument,
              {"edited since its checkpoint of step 4", RunFile("train.pbtxt"),
               "- learning_rate: 0.01", "+ learning_rate: 0.5", "--accept-edits"});
  // An override is intentional, and the next resume does not take it for an edit.
  TrainRequest request = test_.Resume();
  request.train_overrides = {{"learning_rate", "0.25"}};
  EXPECT_NE(test_.Open(request), nullptr);
  EXPECT_NE(test_.Open(test_.Resume()), nullptr);
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("learning_rate: 0.25"));

  ScratchDir::Overwrite(RunFile("model.pbtxt"), "# a comment\n" + model);
  EXPECT_NE(test_.Open(test_.Resume()), nullptr) << "says the same";
  ScratchDir::Overwrite(RunFile("model.pbtxt"),
                        edited(model, "x + f(norm(x))", "x + 0.5 * f(norm(x))"));
  ExpectError(test_.Resume(), absl::StatusCode::kInvalidArgument,
              {RunFile("model.pbtxt"), "x + f(norm(x))", "x + 0.5 * f(norm(x))"});
  request = test_.Resume();
  request.accept_edits = true;
  test_.runtime()->TakeWarnings();
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 99).size(), 4u);
  EXPECT_THAT(test_.runtime()->TakeWarnings(), ::testing::Contains(HasSubstr("was edited since")));
  EXPECT_NE(test_.Open(test_.Resume()), nullptr) << "the new checkpoint was made with them";
}

TEST_F(TrainRunTest, DamagedMetricsAreAWarning) {
  Begin(8, {{"checkpoint_interval", "4"}});
  const std::string whole = Content(RunFile("metrics.csv"));
  const auto resumed = [&] {
    test_.runtime()->TakeWarnings();
    const auto run = test_.Open(test_.Resume());
    return run != nullptr && run->step() == 8;
  };
  ScratchDir::Overwrite(RunFile("metrics.csv"), "{damage\n" + whole);
  EXPECT_TRUE(resumed());
  EXPECT_THAT(test_.runtime()->TakeWarnings(),
              ::testing::Contains(AllOf(HasSubstr("metrics.csv:1"), HasSubstr(".damaged"))));
  EXPECT_EQ(Content(RunFile("metrics.csv")), whole);
  EXPECT_EQ(Content(RunFile("metrics.csv.damaged")), "{damage\n" + whole);
  fs::remove(RunFile("metrics.csv"));
  EXPECT_TRUE(resumed());
  EXPECT_THAT(test_.runtime()->TakeWarnings(), ::testing::Contains(HasSubstr("is missing")));
  fs::rename(RunFile("metrics.csv"), RunFile("metrics.jsonl"));
  ExpectError(test_.Resume(), absl::StatusCode::kInvalidArgument, {"by an earlier plumb"});
}

TEST_F(TrainRunTest, FinishedRunHasNoStepsLeft) {
  Begin(8);
  test_.runtime()->TakeWarnings();
  EXPECT_TRUE(test_.Open(test_.Resume())->done());
  EXPECT_THAT(test_.runtime()->TakeWarnings(),
              ElementsAre(HasSubstr("all of its 8 steps are done")));
  TrainRequest request = test_.Resume();
  request.train_overrides = {{"max_steps", "10"}};
  EXPECT_NE(test_.Open(request), nullptr);
  EXPECT_THAT(test_.runtime()->TakeWarnings(), ElementsAre(HasSubstr("a learning rate of 0")));
}

TEST_F(TrainRunTest, ExtendingARunPastItsScheduleWarns) {
  TrainRequest request = test_.Request(test_.out());
  request.train_overrides = {{"min_learning_rate", "0.001"}};
  TestRun::Steps(test_.Open(request).get(), 8);
  test_.runtime()->TakeWarnings();
  request = test_.Resume();
  request.train_overrides = {{"max_steps", "10"}};
  {
    const auto run = test_.Open(request);
    EXPECT_THAT(
        test_.runtime()->TakeWarnings(),
        ElementsAre(HasSubstr("the schedule ended at step 8, and the steps from there to 10 "
                              "have its final learning rate, 0.001; --set "
                              "train.decay_steps=10")));
    EXPECT_EQ(run->Step()->learning_rate, 0.001);
    EXPECT_TRUE(run->SaveCheckpoint().ok());
  }
  // A recipe that stays at its final rate is not extended, so it does not warn.
  EXPECT_EQ(test_.Open(test_.Resume())->step(), 9);
  EXPECT_THAT(test_.runtime()->TakeWarnings(), ElementsAre());
  request.train_overrides = {{"max_steps", "12"}, {"decay_steps", "12"}};
  EXPECT_GT(test_.Open(request)->Step()->learning_rate, 0.001);
  EXPECT_THAT(test_.runtime()->TakeWarnings(), ElementsAre());
}

TEST_F(TrainRunTest, AResumedMuonRunKeepsItsRate) {
  test_.dir().Write("train.pbtxt", "max_steps: 8 optimizer: MUON data { format: DOCUMENTS }");
  {
    const auto run = test_.Open(test_.Request(test_.out()));
    EXPECT_EQ(run->info().optimizer,
              "Muon for matrices of layers, learning rate 20 * lr; AdamW for the rest, lr 0.001");
  }
  EXPECT_THAT(test_.Open(test_.Resume())->info().optimizer, HasSubstr("20 * lr"));
  // The run's own recipe counts, not the default: earlier versions stored no expression.
  const std::string text = Content(RunFile("train.pbtxt")), rate = "learning_rate: \"20 * lr\"";
  const size_t at = text.find(rate);
  ASSERT_NE(at, std::string::npos) << text;
  test_.dir().Write("run/train.pbtxt", text.substr(0, at) + text.substr(at + rate.size()));
  EXPECT_THAT(test_.Open(test_.Resume())->info().optimizer, HasSubstr("learning rate lr"));
}

}  // namespace
}  // namespace plumb
