// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/train_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/spec/model_spec.h"
#include "tests/session/recipe_fixture.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

std::string StudyModel(const std::string& placement) {
  return *ReadFile(absl::StrCat(PLUMB_SOURCE_DIR, "/examples/why_normalise/", placement, ".pbtxt"));
}

class TrainSessionTest : public RecipeTest {};

TEST_F(TrainSessionTest, LossFallsAndDependsOnTheSeed) {
  const auto context = MakeContext(runtime_.get(), StudyModel("pre"));
  const Dataset data = Documents(50, 2, 12);
  TrainSpec spec;
  spec.learning_rate = 0.01;
  const std::vector<double> losses = Losses(Make(*context, data, spec).get(), 20);
  EXPECT_LT(losses.back(), losses.front());
  spec.seed = 2;
  EXPECT_NE(Losses(Make(*context, data, spec).get(), 1)[0], losses[0]);
}

TEST_F(TrainSessionTest, StepReportsRateTokensAndNumber) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextDataset(100, 5);
  TrainSpec spec;
  spec.batch_size = 3;
  spec.gradient_accumulation_steps = 2;
  spec.learning_rate = 0.5;
  spec.warmup_steps = 2;
  const auto session = Make(*context, data, spec);
  EXPECT_EQ(session->step(), 0);
  const StepResult first = *session->Step(), second = *session->Step();
  EXPECT_EQ(first.step, 1);
  EXPECT_EQ(first.learning_rate, 0.25);
  EXPECT_EQ(first.tokens, 2 * 3 * 8);
  EXPECT_EQ(second.step, 2);
  EXPECT_EQ(second.learning_rate, 0.5);
  EXPECT_EQ(session->step(), 2);
}

TEST_F(TrainSessionTest, ParameterScalesItsLearningRate) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const auto slow = MakeContext(runtime_.get(), TinyModel().Text());
  for (ParameterSpec& parameter : slow->parameters) {
    if (parameter.name == "end.norm.weight") parameter.lr_scale = 0.25;
  }
  const Dataset data = TextDataset(100, 5);
  const auto a = Make(*context, data, TrainSpec()), b = Make(*slow, data, TrainSpec());
  ASSERT_TRUE(a->Step().ok());
  ASSERT_TRUE(b->Step().ok());
  for (const ParameterLayout::Entry& entry : a->parameters().layout().entries) {
    for (int64_t i = entry.begin; i < entry.end; ++i) {
      const float x = a->parameters().data()[i], y = b->parameters().data()[i];
      if (entry.name != "end.norm.weight") {
        ASSERT_EQ(x, y) << entry.name;
      } else {
        ASSERT_NEAR(y - 1, 0.25f * (x - 1), 1e-6f);
      }
    }
  }
}

TEST_F(TrainSessionTest, DivergenceNamesATensor) {
  TinyModel model;
  model.norm = "layer_norm";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = TextDataset(100, 5);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TrainSpec spec;
    spec.dtype = dtype;
    spec.learning_rate = 1e30;
    const auto session = Make(*context, data, spec);
    absl::Status status;
    std::vector<float> before;
    for (int i = 0; i < 5 && status.ok(); ++i) {
      before = Floats(session->parameters());
      status = session->Step().status();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("diverged at step 2: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("not finite is layers.0."));
    EXPECT_EQ(session->step(), 1);
    EXPECT_EQ(Floats(session->parameters()), before);
    // The next step fails too.
    EXPECT_EQ(session->Step().status().code(), absl::StatusCode::kAborted);
  }
}

TEST_F(TrainSessionTest, NamesNonFiniteWeights) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextDataset(100, 5);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TrainSpec spec;
    spec.dtype = dtype;
    spec.gradient_accumulation_steps = 2;
    const auto session = Make(*context, data, spec);
    const float nan = std::nanf("");
    const std::vector<ParameterLayout::Entry>& entries = session->parameters().layout().entries;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].name == "layers.1.mlp.down.weight") session->parameters().Write(i, 0, 1, &nan);
    }
    EXPECT_THAT(std::string(session->Step().status().message()),
                HasSubstr("layers.1.mlp.down.weight"));
  }
}

TEST_F(TrainSessionTest, InvalidSpecsAreErrors) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextDataset(8, 5);  // no window of 8 + 1
  const auto session = TrainSession::Create(context.get(), &data, TrainSpec(), 1);
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumb
