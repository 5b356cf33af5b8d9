// SPDX-License-Identifier: Apache-2.0
// Tests of `step` in formulas through plumb.h: its value in trainers, saved files, evaluators and
// sessions.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

constexpr size_t kLogits = 5, kTokens = 8;  // size of the vocabulary; tokens of a batch

class FormulaStepTest : public CapiTest {
 protected:
  // Returns a model whose logits are multiplied by `what`. Its weights do not change at learning
  // rate 0.
  ModelHandle LogitsTimes(const std::string& what) {
    TinyModel model;
    model.placement = "mine";
    model.more = absl::StrCat(
        "placement { name: \"mine\" extends: \"pre\" "
        "inside { point: \"head.logits\" rule: \"logits = ",
        what, " * logits\" } }");
    ModelHandle made = Create(model.Text());
    EXPECT_PLUMB_OK(plumb_model_init(made.get, 3, err));
    return made;
  }
  static TrainerHandle Train(plumb_model* model, const std::string& dtype) {
    const std::string recipe =
        absl::StrCat("max_steps: 9 batch_size: 1 learning_rate: 0 dtype: ", dtype);
    const plumb_trainer_options options = Recipe(recipe.c_str());
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model, &options, &trainer.get, err));
    return trainer;
  }
  static double Step(plumb_trainer* trainer) {
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_EQ(plumb_trainer_step_tokens(trainer), kTokens);
    EXPECT_PLUMB_OK(plumb_trainer_step(trainer, kIds, kIds + 1, kTokens, &info, err));
    return info.loss;
  }
  // Returns the loss of a step of a model that multiplies by this number.
  double LossTimes(int number, const std::string& dtype = "F32") {
    const ModelHandle model = LogitsTimes(absl::StrCat(number));
    return Step(Train(model.get, dtype).get);
  }
  static double EvaluatedLoss(plumb_model* model) {
    auto options = MakeStruct<plumb_evaluator_options>();
    EvaluatorHandle evaluator;
    EXPECT_PLUMB_OK(plumb_evaluator_create(model, &options, &evaluator.get, err));
    double loss = 0;
    EXPECT_PLUMB_OK(plumb_evaluator_run(evaluator.get, kIds, kIds + 1, kTokens, &loss, err));
    return loss;
  }
  static std::vector<float> DecodedLogits(plumb_model* model) {
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model, nullptr, &session.get, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, kIds, 3, err));
    return Logits(session.get, 0, kLogits);
  }
  // Expects that a loaded model is at step 3.
  void ExpectAtThree(plumb_model* model) {
    EXPECT_NEAR(EvaluatedLoss(model), LossTimes(3), 1e-5);
    const ModelHandle plain = LogitsTimes("1");
    std::vector<float> expected = DecodedLogits(plain.get);
    for (float& logit : expected) logit *= 3;
    EXPECT_LE(RelativeError(DecodedLogits(model), expected), 1e-6);
  }

  static constexpr int32_t kIds[kTokens + 1] = {1, 4, 2, 0, 3, 3, 1, 0, 2};
  ScratchDir scratch_;
};

TEST_F(FormulaStepTest, TrainersCountStepsAndFilesStoreThem) {
  for (const std::string dtype : {"F32", "BF16"}) {
    const double tolerance = dtype == "BF16" ? 1e-2 : 1e-5;
    const ModelHandle model = LogitsTimes("step");
    const TrainerHandle trainer = Train(model.get, dtype);
    for (int step = 1; step <= 3; ++step) {
      EXPECT_NEAR(Step(trainer.get), LossTimes(step, dtype), tolerance) << step;
      EXPECT_GT(std::fabs(LossTimes(step, dtype) - LossTimes(step + 1, dtype)), 2 * tolerance);
    }
    const std::string of_trainer = scratch_.File("trainer"), of_model = scratch_.File("model");
    EXPECT_PLUMB_OK(plumb_trainer_save(trainer.get, of_trainer.c_str(), err));
    EXPECT_PLUMB_OK(plumb_model_save(model.get, of_model.c_str(), nullptr, err));
    for (const std::string& path : {of_trainer, of_model}) {
      const ModelHandle loaded = LogitsTimes("step");
      EXPECT_NEAR(EvaluatedLoss(loaded.get), std::log(kLogits), 1e-6) << "step 0";
      EXPECT_PLUMB_OK(plumb_model_load(loaded.get, path.c_str(), nullptr, err));
      ExpectAtThree(loaded.get);
      const ModelHandle mapped = LogitsTimes("step");
      EXPECT_PLUMB_OK(plumb_model_map(mapped.get, path.c_str(), err));
      ExpectAtThree(mapped.get);
    }
    // A trainer that loads the state continues with step 4. A new one on the same weights starts at
    // step 1.
    const ModelHandle other = LogitsTimes("step");
    const TrainerHandle on = Train(other.get, dtype);
    EXPECT_PLUMB_OK(plumb_trainer_load(on.get, of_trainer.c_str(), err));
    EXPECT_NEAR(Step(on.get), LossTimes(4, dtype), tolerance);
    const ModelHandle again = LogitsTimes("step");
    EXPECT_PLUMB_OK(plumb_model_load(again.get, of_model.c_str(), nullptr, err));
    EXPECT_NEAR(Step(Train(again.get, dtype).get), LossTimes(1, dtype), tolerance);
  }
}

TEST_F(FormulaStepTest, RefusesWeightsWithoutStep) {
  const ModelHandle plain = LogitsTimes("1"), model = LogitsTimes("step");
  const std::string path = scratch_.File("model");
  EXPECT_PLUMB_OK(plumb_model_save(plain.get, path.c_str(), nullptr, err));
  EXPECT_THAT(
      Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_load, model.get, path.c_str(), nullptr),
      testing::HasSubstr("missing: step f32[1]"));
}

}  // namespace
}  // namespace plumb
