#include "plumb/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/session/metrics.h"
#include "tests/api/test_run.h"

namespace plumb {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainRunTest : public ::testing::Test {
 protected:
  void ExpectError(const TrainRequest& request, absl::StatusCode code,
                   const std::vector<std::string>& said) {
    const absl::Status status = test_.OpenError(request);
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : said) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
  std::string RunFile(const std::string& name) const { return JoinPath(test_.out(), name); }
  static std::string Content(const std::string& path) {
    const auto content = ReadFile(path);
    EXPECT_TRUE(content.ok()) << content.status();
    return content.ok() ? *content : "";
  }
  // Everything of the metrics but the time.
  std::vector<std::string> Metrics() const {
    std::vector<std::string> lines;
    const auto metrics = ReadMetrics(RunFile("metrics.jsonl"));
    if (!metrics.ok()) {
      ADD_FAILURE() << metrics.status();
      return lines;
    }
    for (const StepMetrics& line : *metrics) {
      lines.push_back(absl::StrCat(line.step, " ", line.loss, " ", line.lr, " ", line.grad_norm,
                                   " ", line.tokens));
    }
    return lines;
  }
  // A run of `steps` steps, closed.
  void Begin(int steps, const Overrides& overrides = {}) {
    TrainRequest request = test_.Request(test_.out());
    request.train_overrides = overrides;
    const auto run = test_.Open(request);
    TestRun::Steps(run.get(), steps);
  }

  const TestRun test_;
};

TEST_F(TrainRunTest, ARunDirectoryHoldsWhatTheHeaderSays) {
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
       {"model.pbtxt", "train.pbtxt", "run.json", "tokenizer.json", "metrics.jsonl", "latest",
        "checkpoints/step-000008/model.safetensors",
        "checkpoints/step-000008/optimizer.safetensors", "checkpoints/step-000008/state.json"}) {
    EXPECT_TRUE(fs::exists(RunFile(name))) << name;
  }
  EXPECT_EQ(Metrics().size(), 8u);
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("max_steps: 8"));
  // Self-contained: the placement that plumb ships is in it.
  EXPECT_THAT(Content(RunFile("model.pbtxt")), HasSubstr("x = x + f(norm(x))"));
}

TEST_F(TrainRunTest, WithoutADirectoryNothingIsWritten) {
  const auto run = test_.Open(test_.Request(""));
  EXPECT_EQ(TestRun::Steps(run.get(), 99).size(), 8u);
  EXPECT_EQ(run->SaveCheckpoint().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(test_.out()));
}

TEST_F(TrainRunTest, FilesAndNoFilesTrainAlike) {
  const auto a = test_.Open(test_.Request("")), b = test_.Open(test_.Request(test_.out()));
  EXPECT_EQ(TestRun::Steps(a.get(), 8), TestRun::Steps(b.get(), 8));
}

TEST_F(TrainRunTest, ADirectoryThatHoldsARunIsNotOverwritten) {
  Begin(2);
  const std::string before = Content(RunFile("metrics.jsonl"));
  ExpectError(test_.Request(test_.out()), absl::StatusCode::kAlreadyExists,
              {test_.out(), "--resume"});
  EXPECT_EQ(Content(RunFile("metrics.jsonl")), before);
}

TEST_F(TrainRunTest, ThereMustBeARunToResume) {
  ExpectError(test_.Resume(), absl::StatusCode::kNotFound, {test_.out()});
  EXPECT_FALSE(fs::exists(test_.out()));
  TrainRequest request = test_.Request("");
  request.resume = true;
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"out, which names the run, is empty"});
}

TEST_F(TrainRunTest, MistakesInARequestAreErrorsWithPlaces) {
  using Code = absl::StatusCode;
  const TrainRequest right = test_.Request(test_.out());
  TrainRequest request = right;
  request.model_path = "";
  ExpectError(request, Code::kInvalidArgument, {"model"});
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
  EXPECT_FALSE(fs::exists(test_.out())) << "a mistake leaves no directory behind";
}

TEST_F(TrainRunTest, AModelMayHaveRoomForMoreTokensThanTheData) {
  TrainRequest request = test_.Request("");
  request.model_overrides = {{"vocab_size", "9"}};
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 2).size(), 2u);
}

TEST_F(TrainRunTest, TheSeedOfTheRequestGoesBeforeThatOfTheText) {
  TrainRequest request = test_.Request("");
  const std::vector<double> one = TestRun::Steps(test_.Open(request).get(), 3);
  request.train_overrides = {{"seed", "7"}};
  const std::vector<double> seven = TestRun::Steps(test_.Open(request).get(), 3);
  request.seed = 1;
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 3), one);
  EXPECT_NE(seven, one);
}

// Through files, whenever it was interrupted.
TEST_F(TrainRunTest, AnInterruptedRunEndsAsOneThatWasNot) {
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
    const int from = interrupted / 3 * 3;  // the last checkpoint, if there is one
    if (from == 0) {
      const std::string before = Content(JoinPath(test.out(), "metrics.jsonl"));
      const absl::Status status = test.OpenError(test.Resume());
      EXPECT_TRUE(absl::IsNotFound(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("no checkpoint to resume from"));
      EXPECT_EQ(Content(JoinPath(test.out(), "metrics.jsonl")), before) << "nothing was begun";
      continue;
    }
    const auto run = test.Open(test.Resume());
    EXPECT_EQ(run->step(), from);
    EXPECT_EQ(run->info().first_step, from);
    EXPECT_EQ(TestRun::Steps(run.get(), 99),
              std::vector<double>(losses.begin() + from, losses.end()));
    for (const char* file : {kWeights, kMoments}) {
      EXPECT_EQ(Content(JoinPath(test.out(), file)), Content(JoinPath(whole.out(), file)))
          << file << " interrupted after " << interrupted;
    }
    const auto metrics = ReadMetrics(JoinPath(test.out(), "metrics.jsonl"));
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    ASSERT_EQ(metrics->size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ((*metrics)[i].step, static_cast<int64_t>(i + 1));
      EXPECT_EQ((*metrics)[i].loss, losses[i]);
    }
  }
}

TEST_F(TrainRunTest, ABf16RunIsRecordedAndResumesToTheSameBits) {
  TrainRequest request = test_.Request("");
  request.train_overrides = {{"dtype", "BF16"}};
  const auto whole = test_.Open(request);
  EXPECT_EQ(whole->info().dtype, "bf16");
  const std::vector<double> losses = TestRun::Steps(whole.get(), 8);
  ASSERT_EQ(losses.size(), 8u);
  EXPECT_NE(losses, TestRun::Steps(test_.Open(test_.Request("")).get(), 8));
  Begin(5, {{"dtype", "BF16"}, {"checkpoint_interval", "3"}});
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("dtype: BF16"));
  EXPECT_THAT(Content(RunFile("run.json")), HasSubstr("\"dtype\":\"bf16\""));
  const auto run = test_.Open(test_.Resume());
  EXPECT_EQ(run->step(), 3);
  EXPECT_EQ(run->info().dtype, "bf16");
  EXPECT_EQ(TestRun::Steps(run.get(), 99), std::vector<double>(losses.begin() + 3, losses.end()));
}

TEST_F(TrainRunTest, ARunKeepsItsDType) {
  Begin(2, {{"checkpoint_interval", "1"}});
  TrainRequest request = test_.Resume();
  request.train_overrides = {{"dtype", "BF16"}};
  ExpectError(request, absl::StatusCode::kInvalidArgument,
              {"was started with dtype \"f32\", not \"bf16\""});
  request.train_overrides = {{"dtype", "F32"}};
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 99).size(), 6u);
}

// A run directory that was made before runs had a dtype.
TEST_F(TrainRunTest, ARunThatDoesNotSayItsDTypeIsOfF32) {
  Begin(2, {{"checkpoint_interval", "1"}});
  std::string state = Content(RunFile("run.json"));
  const std::string said = "\"dtype\":\"f32\",";
  const size_t at = state.find(said);
  ASSERT_NE(at, std::string::npos) << state;
  test_.dir().Write("run/run.json", state.erase(at, said.size()));
  EXPECT_EQ(test_.Open(test_.Resume())->info().dtype, "f32");
}

TEST_F(TrainRunTest, ComputingBlocksAgainChangesNoLoss) {
  const std::vector<double> losses = TestRun::Steps(test_.Open(test_.Request("")).get(), 8);
  TrainRequest request = test_.Request("");
  request.train_overrides = {{"recompute", "BLOCK"}};
  EXPECT_EQ(TestRun::Steps(test_.Open(request).get(), 8), losses);
}

TEST_F(TrainRunTest, ARunContinuesWithMoreStepsOnRequest) {
  Begin(8);
  TrainRequest request = test_.Resume();
  EXPECT_TRUE(test_.Open(request)->done());
  request.train_overrides = {{"max_steps", "10"}};
  const auto run = test_.Open(request);
  EXPECT_EQ(run->step(), 8);
  EXPECT_EQ(TestRun::Steps(run.get(), 99).size(), 2u);
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("max_steps: 10"));
}

TEST_F(TrainRunTest, FewerStepsThanAreDoneCannotBe) {
  Begin(8);
  TrainRequest request = test_.Resume();
  request.train_overrides = {{"max_steps", "5"}};
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"8 steps", "max_steps 5"});
  EXPECT_THAT(Content(RunFile("train.pbtxt")), HasSubstr("max_steps: 8"));
}

TEST_F(TrainRunTest, ARunIsResumedWithItsOwnDataModelAndSeedOnly) {
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
  ExpectError(request, Code::kInvalidArgument, {"seed 1", "2"});
  // The same model and seed may be said again.
  request = test_.Request(test_.out());
  request.resume = true;
  request.seed = 1;
  const auto run = test_.Open(request);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->step(), 4);
}

TEST_F(TrainRunTest, ARunIsResumedWithItsOwnDataAndSeedBeforeItsFirstCheckpointToo) {
  Begin(2);
  TrainRequest request = test_.Resume();
  request.data_path = test_.dir().Write("other.txt", "abc\nde\nedcba\n");
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"other.txt", "not the data"});
  request = test_.Resume();
  request.train_overrides = {{"seed", "2"}};
  ExpectError(request, absl::StatusCode::kInvalidArgument, {"seed 1", "2"});
  ExpectError(test_.Resume(), absl::StatusCode::kNotFound, {"no checkpoint", "delete it"});
}

TEST_F(TrainRunTest, DamagedCheckpointsAreDataLossThatNamesTheFile) {
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

TEST_F(TrainRunTest, CheckpointsAreKeptAsManyAsAsked) {
  Begin(8, {{"checkpoint_interval", "2"}, {"keep_checkpoints", "3"}});
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(RunFile("checkpoints"))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("step-000004", "step-000006", "step-000008"));
}

TEST_F(TrainRunTest, ACheckpointCanBeAskedForAtAnyStep) {
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
  const auto metrics = ReadMetrics(RunFile("metrics.jsonl"));
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

// A document of one character has two things to predict: the character and the end.
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

TEST_F(TrainRunTest, NothingIsStartedWhereThereIsNothingToResume) {
  TrainRequest request = test_.Request(test_.out());
  request.resume = true;  // with a model, too
  ExpectError(request, absl::StatusCode::kNotFound, {test_.out(), "holds no run"});
  EXPECT_FALSE(fs::exists(test_.out()));
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

// Files of somebody else in the directory of a run that begins.
TEST_F(TrainRunTest, ARunOverwritesNothingThatIsNotItsOwn) {
  for (const char* name : {"model.pbtxt", "train.pbtxt", "tokenizer.json", "run.json",
                           "metrics.jsonl", "probes.jsonl", "latest", "checkpoints"}) {
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

TEST_F(TrainRunTest, ARunThatWasStoppedWhileItBeganIsBegunAgain) {
  Begin(2);
  fs::remove(RunFile("model.pbtxt"));  // the last file to be written
  ScratchDir::Overwrite(RunFile("train.pbtxt.tmp.77"), "half");
  const auto run = test_.Open(test_.Request(test_.out()));
  ASSERT_NE(run, nullptr);
  EXPECT_FALSE(fs::exists(RunFile("train.pbtxt.tmp.77")));
  EXPECT_EQ(TestRun::Steps(run.get(), 99).size(), 8u);
  EXPECT_EQ(Metrics().size(), 8u);
}

TEST_F(TrainRunTest, EditsSinceTheCheckpointAreShownAndHaveToBeMeant) {
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
  // What is set is meant, and is no edit of the next time.
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

TEST_F(TrainRunTest, DamagedOrMissingMetricsWarnAndKeepNothingFromBeingResumed) {
  Begin(8, {{"checkpoint_interval", "4"}});
  const std::string whole = Content(RunFile("metrics.jsonl"));
  const auto resumed = [&] {
    test_.runtime()->TakeWarnings();
    const auto run = test_.Open(test_.Resume());
    return run != nullptr && run->step() == 8;
  };
  ScratchDir::Overwrite(RunFile("metrics.jsonl"), "{damage\n" + whole);
  EXPECT_TRUE(resumed());
  EXPECT_THAT(test_.runtime()->TakeWarnings(),
              ::testing::Contains(AllOf(HasSubstr("metrics.jsonl:1"), HasSubstr(".damaged"))));
  EXPECT_EQ(Content(RunFile("metrics.jsonl")), whole);
  EXPECT_EQ(Content(RunFile("metrics.jsonl.damaged")), "{damage\n" + whole);
  fs::remove(RunFile("metrics.jsonl"));
  EXPECT_TRUE(resumed());
  EXPECT_THAT(test_.runtime()->TakeWarnings(), ::testing::Contains(HasSubstr("is missing")));
}

TEST_F(TrainRunTest, ADirectoryThatIsGoneIsNoticed) {
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

TEST_F(TrainRunTest, AFinishedRunSaysThatThereIsNothingLeftToDo) {
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

TEST_F(TrainRunTest, AModelThatNoMemoryCanHoldIsAnError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer aborts on such an allocation";
#endif
  TrainRequest request = test_.Request("");
  request.model_overrides = {{"d_model", "1048576"}, {"n_layer", "40"}};
  const absl::Status status = test_.OpenError(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("memory"));
}

}  // namespace
}  // namespace plumb
