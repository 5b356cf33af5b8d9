// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/train_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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

TEST_F(TrainSessionTest, AccumulatedGradientsEqualTheWholeBatch) {
  TinyModel model;
  model.vocab_size = 6;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  TrainSpec whole;
  whole.batch_size = 8;
  whole.eps = 1e-3;  // noise of gradients around zero must count little
  TrainSpec parts = whole;
  parts.batch_size = 4;
  parts.gradient_accumulation_steps = 2;
  const auto a = Make(*context, data, whole), b = Make(*context, data, parts);
  for (int i = 0; i < 5; ++i) {
    const StepResult x = *a->Step(), y = *b->Step();
    EXPECT_NEAR(x.loss, y.loss, 1e-6 * x.loss);
    EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-5 * x.grad_norm);
    EXPECT_EQ(x.tokens, y.tokens);
  }
  for (int64_t i = 0; i < a->parameters().layout().size; ++i) {
    ASSERT_NEAR(a->parameters().data()[i], b->parameters().data()[i], 1e-6);
  }
}

// Two steps that differ in the decay only differ by learning_rate * decay * weight.
TEST_F(TrainSessionTest, WeightDecayAppliesToMatricesOrAll) {
  TinyModel model;
  model.placement = "mine";
  model.norm = "layer_norm";
  model.vocab_size = 6;
  model.more = R"pbtxt(
    attention { bias: true }
    placement {
      name: "mine"
      learned { name: "asks" init: 0.5 weight_decay: true }
      learned { name: "does_not" init: 0.5 per_channel: true }
      each: "x = x + asks * f(does_not * norm(x))"
    })pbtxt";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  TrainSpec spec;
  spec.learning_rate = 0.125;
  const auto step = [&](double decay, bool everything) {
    spec.weight_decay = decay;
    spec.decay_everything = everything;
    auto session = Make(*context, data, spec);
    EXPECT_TRUE(session->Step().ok());
    return session;
  };
  ParameterStore start(context->parameters, context->states);
  ASSERT_TRUE(
      DrawParameters(context->parameters, context->states, spec.seed, /*threads=*/1, start).ok());
  const auto none = step(0, false), matrices = step(0.5, false), all = step(0.5, true);
  const auto expect_decay = [&](const TrainSession& session, const ParameterLayout::Entry& entry,
                                double decay) {
    for (int64_t i = entry.begin; i < entry.end; ++i) {
      const double moved = static_cast<double>(none->parameters().data()[i]) -
                           static_cast<double>(session.parameters().data()[i]);
      ASSERT_NEAR(moved, 0.125 * decay * static_cast<double>(start.data()[i]), 1e-6) << entry.name;
    }
  };
  int matrix_count = 0;
  for (size_t i = 0; i < context->parameters.size(); ++i) {
    const ParameterSpec& parameter = context->parameters[i];
    const ParameterLayout::Entry& entry = start.layout().entries[i];
    const bool decays =
        parameter.shape.rank() == 2 || parameter.name.find(".asks") != std::string::npos;
    matrix_count += decays ? 1 : 0;
    expect_decay(*matrices, entry, decays ? 0.5 : 0);
    expect_decay(*all, entry, 0.5);
  }
  EXPECT_EQ(matrix_count, 3 + 2 * 6 + 2 * 2);
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
  TrainSpec spec;
  spec.learning_rate = 1e30;
  const auto session = Make(*context, data, spec);
  absl::Status status;
  std::vector<float> before;
  for (int i = 0; i < 5 && status.ok(); ++i) {
    const ParameterStore& store = session->parameters();
    before.assign(store.data(), store.data() + store.layout().size);
    status = session->Step().status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("diverged at step 2: the loss is "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("not finite is layers.0."));
  EXPECT_EQ(session->step(), 1);
  EXPECT_EQ(std::memcmp(before.data(), session->parameters().data(), before.size() * sizeof(float)),
            0);
  // The next step fails too.
  EXPECT_EQ(session->Step().status().code(), absl::StatusCode::kAborted);
}

TEST_F(TrainSessionTest, NamesNonFiniteWeights) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextDataset(100, 5);
  TrainSpec spec;
  spec.gradient_accumulation_steps = 2;
  const auto session = Make(*context, data, spec);
  for (const ParameterLayout::Entry& entry : session->parameters().layout().entries) {
    if (entry.name == "layers.1.mlp.down.weight") {
      session->parameters().data()[entry.begin] = std::nanf("");
    }
  }
  EXPECT_THAT(std::string(session->Step().status().message()),
              HasSubstr("layers.1.mlp.down.weight"));
}

TEST_F(TrainSessionTest, InvalidSpecsAreErrors) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextDataset(8, 5);  // no window of 8 + 1
  const auto session = TrainSession::Create(context.get(), &data, TrainSpec(), 1);
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumb
