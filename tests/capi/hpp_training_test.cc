// SPDX-License-Identifier: Apache-2.0
// Tests of plumb.hpp's trainer: planned, stepped on short sequences, saved tensor by tensor, probed
// and profiled.
#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plumb.hpp"
#include "tests/capi/hpp_models.h"

namespace {

using plumb::Code;
using plumb::Next;
using plumb::State;
using testing::HasSubstr;

constexpr char kTwoMicroBatches[] = "batch_size: 2 gradient_accumulation_steps: 2 seed: 3";

plumb::Trainer Train(plumb::Model& model, const std::string& more = "") {
  plumb::TrainerOptions options;
  options.recipe = std::string(kTwoMicroBatches) + more;
  options.draw_weights = true;
  return plumb::Trainer::Create(model, options).value();
}

// Fills in rows of three tokens, then of seven.
void FillShort(std::int64_t i, std::int32_t* inputs, std::int32_t* targets, std::int64_t& seq) {
  seq = i == 0 ? 3 : 7;
  const auto n = static_cast<std::size_t>(2 * seq);
  Fill(i, {inputs, n}, {targets, n});
}

TEST(HppTrainingTest, CompletesARecipe) {
  const std::string whole = plumb::RecipeText("max_steps: 7", {{"beta1", "0.5"}}).value();
  EXPECT_THAT(whole, HasSubstr("beta1: 0.5\n"));
  EXPECT_EQ(plumb::RecipeText(whole).value(), whole);
  const plumb::Error error = plumb::RecipeText("beta1: 2", {}, "train.pbtxt").error();
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_EQ(error.file(), "train.pbtxt");
}

TEST(HppTrainingTest, PlansMemory) {
  plumb::Model model = MakeModel();
  plumb::TrainerOptions options;
  options.recipe = kTwoMicroBatches;
  EXPECT_EQ(plumb::Trainer::Plan(model, options).value().total, Train(model).Memory().total);
  options.seq = 99;
  EXPECT_EQ(plumb::Trainer::Plan(model, options).error().code(), Code::kInvalidArgument);
  EXPECT_GT(plumb::Evaluator::Plan(model).value(), 0);
}

TEST(HppTrainingTest, HostComputesTheLoss) {
  plumb::Model model = MakeModel();
  plumb::TrainerOptions options;
  options.recipe = kTwoMicroBatches;
  options.draw_weights = true;
  int calls = 0;
  options.loss = [&calls](plumb::LossInfo& loss) {
    loss.loss = ++calls;
    loss.gradient[0] = 1;
    return calls == 3 ? Next::kStop : Next::kGoOn;
  };
  EXPECT_GT(plumb::Trainer::Plan(model, options).value().workspace, 0);
  std::optional<plumb::Trainer> trainer = plumb::Trainer::Create(model, options).value();
  options.loss = nullptr;  // the trainer keeps its own
  plumb::Trainer moved = *std::move(trainer);
  trainer.reset();
  const plumb::StepInfo info = moved.StepWithCallback(FillShort).value();
  EXPECT_EQ(info.loss, 1 + 2);
  EXPECT_GT(info.gradient_norm, 0);
  EXPECT_EQ(moved.StepWithCallback(FillShort).error().code(), Code::kCancelled);
  EXPECT_EQ(calls, 3);
}

TEST(HppTrainingTest, LossMayThrow) {
  plumb::Model model = MakeModel();
  plumb::TrainerOptions options;
  options.recipe = kTwoMicroBatches;
  options.draw_weights = true;
  options.loss = [](plumb::LossInfo&) -> Next { throw std::string("thrown"); };
  plumb::Trainer trainer = plumb::Trainer::Create(model, options).value();
  EXPECT_THROW((void)trainer.StepWithCallback(FillShort), std::string);
}

TEST(HppTrainingTest, MicroBatchesMayBeShort) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer = Train(model);
  EXPECT_EQ(trainer.StepWithCallback(FillShort).value().tokens, 20);
  const auto none = [](std::int64_t, std::int32_t*, std::int32_t*, std::int64_t&) {
    return Next::kStop;
  };
  EXPECT_EQ(trainer.StepWithCallback(none).error().code(), Code::kCancelled);
  const auto throws = [](std::int64_t, std::int32_t*, std::int32_t*, std::int64_t&) {
    throw std::string("thrown");
  };
  EXPECT_THROW((void)trainer.StepWithCallback(throws), std::string);
  EXPECT_EQ(trainer.Steps(), 1);
}

TEST(HppTrainingTest, StateContinuesInAnotherTrainer) {
  for (const char* const dtype : {" dtype: F32", " dtype: BF16"}) {
    plumb::Model first = MakeModel(), second = MakeModel();
    plumb::Trainer from = Train(first, dtype), to = Train(second, dtype);
    from.StepWithCallback(FillShort).value();
    for (const State state : {State::kModel, State::kOptimizer}) {
      const std::size_t count = from.StateCount(state);
      EXPECT_GT(count, 0u);
      EXPECT_EQ(from.StateTensor(state, count).error().code(), Code::kOutOfRange);
      for (std::size_t i = 0; i < count; ++i) {
        const auto tensor = from.StateTensor(state, i);
        std::vector<float> values(static_cast<std::size_t>(tensor->shape[0] * tensor->shape[1]));
        from.ReadState(state, i, 0, values).value();
        EXPECT_TRUE(std::equal(tensor->data.begin(), tensor->data.end(), values.begin()));
        to.WriteState(state, i, 0, values).value();
      }
    }
    to.SetSteps(from.Steps()).value();
    EXPECT_EQ(from.StepWithCallback(FillShort).value().loss,
              to.StepWithCallback(FillShort).value().loss);
    EXPECT_EQ(from.StepWithCallback(FillShort).value().loss,
              to.StepWithCallback(FillShort).value().loss);
    from.Check().value();
  }
}

TEST(HppTrainingTest, ReturnsRatesFiguresAndProfiles) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer = Train(model, " learning_rate: 0.5");
  trainer.ScaleLearningRate(0.5).value();
  EXPECT_EQ(trainer.LearningRate(), 0.25);
  EXPECT_EQ(trainer.ScaleLearningRate(-1).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(trainer.ProfileRows().empty());
  trainer.Profile(true).value();
  trainer.SetProbe(3, {"logits"}).value();
  EXPECT_TRUE(trainer.GetProbes().empty());
  trainer.StepWithCallback(FillShort).value();
  const std::vector<plumb::ProbeInfo> figures = trainer.GetProbes();
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_STREQ(figures[0].name, "logits");
  EXPECT_EQ(figures[0].elements, 2 * (3 + 7) * 5);
  trainer.StepWithCallback(FillShort).value();
  EXPECT_TRUE(trainer.GetProbes().empty());
  const std::vector<plumb::ProfileRow> rows = trainer.ProfileRows();
  ASSERT_GT(rows.size(), 3u);
  EXPECT_EQ(rows[0].runs, 2);
  EXPECT_STREQ(rows.back().name, "other");
}

TEST(HppTrainingTest, ReturnsTextAndNormsOfAModel) {
  plumb::Model model = MakeModel();
  EXPECT_THAT(model.Text().value(), HasSubstr("n_layer: 1"));
  EXPECT_THAT(model.Norms().value(), HasSubstr("{\"rms_norm\":\""));
}

}  // namespace
