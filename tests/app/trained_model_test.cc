// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/trained_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "tests/app/test_run.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

class TrainedModelTest : public ::testing::Test {
 protected:
  void Train(const Overrides& overrides = {}) {
    TrainRequest request = test_.Request(test_.out());
    request.train_overrides = overrides;
    const auto run = test_.Open(request);
    TestRun::Steps(run.get(), 99);
    const auto loss = run->ValidationLoss();
    if (loss.ok()) validation_loss_ = *loss;
  }
  std::unique_ptr<TrainedModel> Open(const std::string& path) {
    auto model = TrainedModel::Open(test_.runtime(), path);
    if (!model.ok()) {
      ADD_FAILURE() << model.status();
      return nullptr;
    }
    return *std::move(model);
  }
  static std::string GetText(TrainedModel* model, const GenerateOptions& options) {
    const auto result = model->Generate(options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->text : "";
  }

  const TestRun test_;
  double validation_loss_ = 0;
};

constexpr char kTextTraining[] = R"pbtxt(
  max_steps: 3 batch_size: 2 data { format: TEXT val_fraction: 0.25 }
)pbtxt";

TEST_F(TrainedModelTest, BatchedSamplesEqualSingleSamples) {
  Train();
  for (const api::Weights weights :
       {api::Weights::kF32, api::Weights::kBf16, api::Weights::kInt8}) {
    auto opened = TrainedModel::Open(test_.runtime(), test_.out(), weights);
    ASSERT_TRUE(opened.ok()) << opened.status();
    // 0: until the end token or a full context. 30: the context slides.
    for (const int64_t max_tokens : {0, 1, 30}) {
      GenerateOptions options;
      options.prompt = max_tokens == 1 ? "" : "ab";
      options.index = 3;
      options.max_tokens = max_tokens;
      std::vector<GenerateResult> together;
      const absl::Status status = (*opened)->GenerateMany(options, 21, [&](GenerateResult sample) {
        together.push_back(std::move(sample));
        return true;
      });
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(together.size(), 21u);
      for (const GenerateResult& sample : together) {
        const auto alone = (*opened)->Generate(options);
        ASSERT_TRUE(alone.ok()) << alone.status();
        EXPECT_EQ(sample.text, alone->text);
        EXPECT_EQ(sample.tokens, alone->tokens);
        EXPECT_EQ(sample.ended, alone->ended);
        ++options.index;
      }
    }
    int delivered = 0;
    const auto stop = [&](GenerateResult) { return ++delivered < 2; };
    EXPECT_TRUE((*opened)->GenerateMany(GenerateOptions(), 20, stop).ok());
    EXPECT_EQ(delivered, 2);
  }
}

TEST_F(TrainedModelTest, OpensACheckpointDirectory) {
  Train({{"checkpoint_interval", "4"}});
  const std::string fourth = JoinPath(test_.out(), "checkpoints/step-000004");
  EXPECT_EQ(Open(fourth)->step(), 4);
  EXPECT_EQ(Open(fourth)->checkpoint(), fourth);
  EXPECT_EQ(Open(test_.out())->checkpoint(), JoinPath(test_.out(), "checkpoints/step-000008"));
  EXPECT_EQ(Open(absl::StrCat(test_.out(), "/"))->step(), 8);
  EXPECT_EQ(Open(absl::StrCat(fourth, "/"))->step(), 4);
}

TEST_F(TrainedModelTest, GenerateStreamsPromptAndText) {
  Train();
  const auto model = Open(test_.out());
  GenerateOptions options;
  options.prompt = "ab";
  options.max_tokens = 5;
  std::string pieces;
  const auto result = model->Generate(options, [&](absl::string_view piece) {
    absl::StrAppend(&pieces, piece);
    return true;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->text, pieces);
  ASSERT_EQ(pieces.substr(0, 2), "ab");
  EXPECT_EQ(result->tokens, static_cast<int64_t>(pieces.size()) - 2 + (result->ended ? 1 : 0));
  EXPECT_LE(result->tokens, 5);
  // Generation stops if the callback returns false.
  int calls = 0;
  const auto stopped = model->Generate(options, [&](absl::string_view) { return ++calls < 1; });
  ASSERT_TRUE(stopped.ok());
  EXPECT_LE(calls, 1);
  EXPECT_EQ(stopped->tokens, 1);
}

TEST_F(TrainedModelTest, InvalidOptionsAreErrors) {
  Train();
  const auto model = Open(test_.out());
  const auto error = [&](const GenerateOptions& options) {
    return model->Generate(options).status();
  };
  GenerateOptions options;
  options.prompt = "axb";
  EXPECT_EQ(error(options).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(error(options).message()), HasSubstr("x"));
  EXPECT_TRUE(absl::StartsWith(error(options).message(), "prompt"));
  options.prompt = "abababababab";  // together with the begin token longer than the context of 10
  EXPECT_EQ(error(options).code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(error(options).message()), HasSubstr("13 tokens"));
  for (const auto& change : std::vector<void (*)(GenerateOptions*)>{
           [](GenerateOptions* o) { o->temperature = -1; },
           [](GenerateOptions* o) { o->top_k = -1; }, [](GenerateOptions* o) { o->top_p = 0; },
           [](GenerateOptions* o) { o->top_p = 1.5; },
           [](GenerateOptions* o) { o->max_tokens = -1; },
           [](GenerateOptions* o) { o->temperature = std::nan(""); }}) {
    GenerateOptions wrong;
    change(&wrong);
    EXPECT_EQ(error(wrong).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(model->Generate({}).ok()) << "and still works";
}

TEST_F(TrainedModelTest, GeneratesBeyondTheContext) {
  test_.dir().Write("train.pbtxt", kTextTraining);
  Train();
  const auto model = Open(test_.out());
  GenerateOptions options;
  options.max_tokens = 57;
  const auto result = model->Generate(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tokens, 57);
  EXPECT_EQ(result->text.size(), 57u);
  EXPECT_FALSE(result->ended);
  options.max_tokens = 0;
  EXPECT_EQ(model->Generate(options)->tokens, 10) << "until the context is full";
  // The context does not slide before it is full.
  options.max_tokens = 10;
  EXPECT_EQ(GetText(model.get(), options), result->text.substr(0, 10));
}

TEST_F(TrainedModelTest, EvaluationEqualsTheRunsValidationLoss) {
  Train();
  const auto losses = Open(test_.out())->Evaluate(test_.dir().File("data.txt"));
  ASSERT_TRUE(losses.ok()) << losses.status();
  ASSERT_EQ(losses->size(), 2u);
  EXPECT_EQ((*losses)[0].split, "training");
  EXPECT_EQ((*losses)[0].sequences, 30);
  EXPECT_EQ((*losses)[1].split, "validation");
  EXPECT_EQ((*losses)[1].sequences, 10);
  ASSERT_GT(validation_loss_, 0);
  EXPECT_NEAR((*losses)[1].loss, validation_loss_, 1e-6);
}

TEST_F(TrainedModelTest, DropsAnEmptySplit) {
  Train({{"data.val_fraction", "0"}});
  const auto losses = Open(test_.out())->Evaluate(test_.dir().File("data.txt"));
  ASSERT_TRUE(losses.ok()) << losses.status();
  ASSERT_EQ(losses->size(), 1u);
  EXPECT_EQ((*losses)[0].split, "training");
  // Documents of one character have targets: the character and the end.
  const auto shortest = Open(test_.out())->Evaluate(test_.dir().Write("short.txt", "a\n"));
  ASSERT_TRUE(shortest.ok()) << shortest.status();
  ASSERT_EQ(shortest->size(), 1u);
  EXPECT_EQ((*shortest)[0].targets, 2);
}

TEST_F(TrainedModelTest, DataWithUnknownCharactersIsAnError) {
  Train();
  const auto losses = Open(test_.out())->Evaluate(test_.dir().Write("other.txt", "ab\nzz\n"));
  EXPECT_EQ(losses.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(losses.status().message()), HasSubstr("other.txt:2:1"));
}

TEST_F(TrainedModelTest, MissingRunIsNotFound) {
  const auto error = [&](const std::string& path) {
    return TrainedModel::Open(test_.runtime(), path).status();
  };
  EXPECT_EQ(error(test_.out()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(error(test_.dir().path()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(error("").code(), absl::StatusCode::kNotFound);
  // A run without a checkpoint has nothing to sample from.
  const auto run = test_.Open(test_.Request(test_.out()));
  EXPECT_EQ(error(test_.out()).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace plumb
