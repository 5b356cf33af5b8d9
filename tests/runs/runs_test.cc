// SPDX-License-Identifier: Apache-2.0
// Runs and studies of a host that links libplumb.so equal those of the command line, to the byte.
#include "plumb.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "plumb.hpp"

namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

void WriteAll(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class RunsTest : public ::testing::Test {
 protected:
  RunsTest() {
    std::string pattern = (fs::temp_directory_path() / "plumb-runs-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    plumb_error* error = nullptr;
    EXPECT_EQ(plumb_runtime_create(PLUMB_ABI_VERSION, nullptr, &runtime_, &error), PLUMB_OK)
        << plumb_error_message(error);
  }
  ~RunsTest() override {
    plumb_runtime_free(runtime_);
    fs::remove_all(directory_);
  }

  std::string Path(const std::string& name) const { return (directory_ / name).string(); }
  static std::string Source(const std::string& name) {
    return std::string(PLUMB_SOURCE_DIR "/examples/") + name;
  }

  // Runs `plumb` and returns its stdout.
  std::string Plumb(const std::string& arguments) const {
    const std::string out = Path("stdout");
    const std::string command =
        std::string(PLUMB_PROGRAM " ") + arguments + " > '" + out + "' 2> '" + Path("stderr") + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n" << ReadAll(Path("stderr"));
    return ReadAll(out);
  }

  // Returns a training of a small model on names, whose strings live as long as the test.
  plumb_run_training Training(const std::string& out) {
    plumb_run_training training = PLUMB_RUN_TRAINING_INIT;
    training.model = Keep(Source("why_normalise/pre.pbtxt"));
    training.data = Keep(Source("data/names.txt"));
    training.recipe = Keep(Source("why_normalise/train.pbtxt"));
    training.out = Keep(Path(out));
    training.settings = kSettings;
    training.settings_count = std::size(kSettings);
    return training;
  }

  const char* Keep(std::string text) {
    kept_.push_back(std::make_unique<std::string>(std::move(text)));
    return kept_.back()->c_str();
  }

  plumb_status Train(const plumb_run_training& training) {
    plumb_error* error = nullptr;
    const plumb_status status = plumb_run_train(runtime_, &training, &error);
    message_ = error == nullptr ? "" : plumb_error_message(error);
    plumb_error_free(error);
    return status;
  }

  static constexpr const char* kSettings[] = {"model.n_layer=2", "train.max_steps=20",
                                              "train.eval_interval=10", "train.eval_batches=5",
                                              "train.data.val_fraction=0.1"};
  const std::string settings_of_command_ =
      " --set model.n_layer=2 --set train.max_steps=20 --set train.eval_interval=10"
      " --set train.eval_batches=5 --set train.data.val_fraction=0.1";
  fs::path directory_;
  plumb_runtime* runtime_ = nullptr;
  std::string message_;  // of the last Train
  std::vector<std::unique_ptr<std::string>> kept_;
};

constexpr const char* RunsTest::kSettings[];

TEST_F(RunsTest, StoppedAndResumedRunEqualsTheCommandLines) {
  struct Seen {
    int64_t stop_at = 0;
    std::vector<int64_t> steps, validated;
    std::string checkpoint;
  } seen;
  plumb_run_training training = Training("run");
  training.user = &seen;
  training.on_step = [](void* user, const plumb_run_step* step) -> int32_t {
    auto& s = *static_cast<Seen*>(user);
    s.steps.push_back(step->step);
    if (!std::isnan(step->val_loss)) s.validated.push_back(step->step);
    EXPECT_EQ(step->max_steps, 20);
    EXPECT_GT(step->loss, 0);
    EXPECT_GT(step->tokens, 0);
    s.checkpoint = step->checkpoint;
    return step->step == s.stop_at ? 1 : 0;
  };
  seen.stop_at = 7;
  EXPECT_EQ(Train(training), PLUMB_STATUS_CANCELLED);
  EXPECT_THAT(message_, HasSubstr("stopped by the caller after step 7"));
  EXPECT_EQ(Train(training), PLUMB_STATUS_ALREADY_EXISTS);
  training.resume = 1;
  EXPECT_EQ(Train(training), PLUMB_OK) << message_;
  EXPECT_EQ(seen.steps.size(), 20U);
  EXPECT_EQ(seen.validated, (std::vector<int64_t>{10, 20}));
  EXPECT_THAT(seen.checkpoint, HasSubstr("step-"));

  Plumb("train " + Source("why_normalise/pre.pbtxt") + " --data " + Source("data/names.txt") +
        " --train " + Source("why_normalise/train.pbtxt") + settings_of_command_ + " --out " +
        Path("command"));
  EXPECT_EQ(ReadAll(Path("run/model.pbtxt")), ReadAll(Path("command/model.pbtxt")));
  EXPECT_EQ(ReadAll(Path("run/train.pbtxt")), ReadAll(Path("command/train.pbtxt")));
  const std::string latest = ReadAll(Path("command/latest"));
  EXPECT_EQ(ReadAll(Path("run/latest")), latest);
  const std::string weights =
      "/checkpoints/" + latest.substr(0, latest.find('\n')) + "/model.safetensors";
  EXPECT_EQ(ReadAll(Path("run") + weights), ReadAll(Path("command") + weights));
}

TEST_F(RunsTest, OpenedRunSamplesLikeTheCommandLine) {
  ASSERT_EQ(Train(Training("run")), PLUMB_OK) << message_;
  plumb::Runtime runtime = plumb::Runtime::Create().value();
  plumb::Run run = plumb::Run::Open(runtime, Path("run")).value();
  EXPECT_EQ(run.step, 20);
  const plumb::TokenizerInfo tokens = run.tokenizer.Info();
  std::vector<int32_t> ids = tokens.prefix;
  for (const int32_t id : run.tokenizer.Encode("an").value()) ids.push_back(id);
  plumb::Session session = plumb::Session::Create(run.model).value();
  session.Feed(0, ids).value();
  plumb::Decoder decoder = plumb::Decoder::Create(run.tokenizer, ids).value();
  plumb::SampleOptions options;
  options.temperature = 0;
  options.end_tokens = tokens.end_tokens;
  std::string text = "an";
  session.Generate(0, options, [&](int32_t token) { text += decoder.Next(token).value(); }).value();
  EXPECT_EQ(text + "\n", Plumb("sample " + Path("run") + " --prompt an --temperature 0 --num 1"));
}

TEST_F(RunsTest, ErrorsNameTheirPlace) {
  plumb_model* model = nullptr;
  plumb_error* error = nullptr;
  EXPECT_EQ(plumb_run_open(runtime_, Path("none").c_str(), 0, &model, nullptr, nullptr, &error),
            PLUMB_STATUS_NOT_FOUND);
  EXPECT_THAT(plumb_error_message(error), HasSubstr("neither a run nor a checkpoint"));
  plumb_error_free(error);
  EXPECT_EQ(plumb_run_open(runtime_, "x", 8, &model, nullptr, nullptr, nullptr),
            PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(plumb_run_open(nullptr, "x", 0, &model, nullptr, nullptr, nullptr),
            PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(model, nullptr);

  plumb_run_training training = Training("run");
  WriteAll(directory_ / "wrong.pbtxt", "n_layer: 1\nn_hed: 2\n");
  training.model = Keep(Path("wrong.pbtxt"));
  EXPECT_EQ(Train(training), PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(message_, HasSubstr("wrong.pbtxt:2:1"));
  EXPECT_THAT(message_, HasSubstr("did you mean \"n_head\""));
  training.out = nullptr;
  EXPECT_EQ(Train(training), PLUMB_STATUS_INVALID_ARGUMENT);
  training = Training("run");
  const char* const bad[] = {"n_layer"};
  training.settings = bad;
  training.settings_count = 1;
  EXPECT_EQ(Train(training), PLUMB_STATUS_INVALID_ARGUMENT);
  const char* const missing[] = {nullptr};
  training.settings = missing;
  EXPECT_EQ(Train(training), PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(message_, HasSubstr("settings[0] is NULL"));
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(RunsTest, StoppedAndContinuedStudyEqualsTheCommandLines) {
  const std::string text =
      "model: \"" + Source("why_normalise/pre.pbtxt") + "\" model: \"" +
      Source("why_normalise/post.pbtxt") + "\" data: \"" + Source("data/names.txt") +
      "\" train: \"" + Source("why_normalise/train.pbtxt") +
      "\" set: \"train.max_steps=30\" set: \"model.n_layer=1\"\n"
      "grid { field: \"train.learning_rate\" value: \"0.001\" value: \"0.01\" }"
      " seeds: 2 samples: 0\n";
  WriteAll(directory_ / "study.pbtxt", text);
  struct Seen {
    bool stops = true;
    plumb_study_progress last = PLUMB_STUDY_PROGRESS_INIT;
  } seen;
  plumb_study_options options = PLUMB_STUDY_OPTIONS_INIT;
  options.out = Keep(Path("study"));
  options.user = &seen;
  options.on_progress = [](void* user, const plumb_study_progress* progress) -> int32_t {
    auto& s = *static_cast<Seen*>(user);
    s.last = *progress;
    return s.stops ? 1 : 0;
  };
  plumb_error* error = nullptr;
  EXPECT_EQ(plumb_study_run(Path("study.pbtxt").c_str(), &options, &error), PLUMB_STATUS_CANCELLED);
  plumb_error_free(error);
  error = nullptr;
  EXPECT_EQ(seen.last.runs, 8);
  seen.stops = false;
  EXPECT_EQ(plumb_study_run(Path("study.pbtxt").c_str(), &options, &error), PLUMB_OK)
      << plumb_error_message(error);
  EXPECT_EQ(seen.last.ended, 8);
  EXPECT_EQ(seen.last.steps_taken, seen.last.steps);

  Plumb("compare " + Path("study.pbtxt") + " --out " + Path("command") + " --quiet");
  for (const char* name : {"runs.csv", "study.pbtxt", "table.csv"}) {
    EXPECT_EQ(ReadAll(Path("study/") + name), ReadAll(Path("command/") + name)) << name;
  }
  EXPECT_EQ(plumb_study_run(nullptr, &options, nullptr), PLUMB_STATUS_INVALID_ARGUMENT);
  options.norms_count = 1;
  EXPECT_EQ(plumb_study_run(Path("study.pbtxt").c_str(), &options, nullptr),
            PLUMB_STATUS_INVALID_ARGUMENT);
}

}  // namespace
