// SPDX-License-Identifier: Apache-2.0
// Tests of bidirectional models and token types through plumb.h: padding, types, masked tokens and
// errors.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/capi/capi_fixture.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabularySize = 5;  // size of the vocabulary

class BidirectionalApiTest : public CapiTest {
 protected:
  ModelHandle Bert(const std::string& more = "bidirectional: true token_types: 2") {
    TinyModel model;
    model.more = more;
    ModelHandle made = Create(model.Text());
    EXPECT_PLUMB_OK(plumb_model_init(made.get, 3, err));
    return made;
  }
  static EvaluatorHandle Evaluate(plumb_model* model, int64_t rows) {
    auto options = MakeStruct<plumb_evaluator_options>();
    options.rows = rows;
    options.logits = options.gradients = 1;
    EvaluatorHandle evaluator;
    EXPECT_PLUMB_OK(plumb_evaluator_create(model, &options, &evaluator.get, err));
    return evaluator;
  }
};

TEST_F(BidirectionalApiTest, InfoIsBidirectionalWithoutSessions) {
  const ModelHandle model = Bert();
  auto info = MakeStruct<plumb_model_info>();
  EXPECT_PLUMB_OK(plumb_model_get_info(model.get, &info, err));
  EXPECT_EQ(info.bidirectional, 1);
  EXPECT_EQ(info.token_types, 2);
  SessionHandle session;
  EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_session_create, model.get, nullptr,
                    &session.get),
              HasSubstr("the model is bidirectional"));
  auto work = MakeStruct<plumb_work>();
  EXPECT_PLUMB_OK(
      plumb_model_work(model.get, PLUMB_PASS_TRAINING, 4, PLUMB_WEIGHTS_F32, nullptr, &work, err));
  EXPECT_GT(work.flops, 0);
  EXPECT_EQ(work.weight_bytes, 0);
  EXPECT_EQ(
      plumb_model_work(model.get, PLUMB_PASS_FEED, 4, PLUMB_WEIGHTS_F32, nullptr, &work, nullptr),
      PLUMB_STATUS_FAILED_PRECONDITION);
}

TEST_F(BidirectionalApiTest, PaddingIsMasked) {
  const ModelHandle model = Bert();
  const EvaluatorHandle two = Evaluate(model.get, 2), one = Evaluate(model.get, 1);
  const int32_t inputs[] = {1, 2, 3, 4, 4, 0, -1, -1}, targets[] = {1, -1, 2, -1, -1, 3, -1, -1};
  const int32_t types[] = {0, 0, 1, 1, 1, 0, 1, 0};
  double both = 0, first = 0, second = 0;
  EXPECT_PLUMB_OK(plumb_evaluator_set_types(two.get, types, 8, err));
  EXPECT_PLUMB_OK(plumb_evaluator_run(two.get, inputs, targets, 8, &both, err));
  EXPECT_PLUMB_OK(plumb_evaluator_set_types(one.get, types, 4, err));
  EXPECT_PLUMB_OK(plumb_evaluator_run(one.get, inputs, targets, 4, &first, err));
  EXPECT_PLUMB_OK(plumb_evaluator_set_types(one.get, types + 4, 2, err));
  EXPECT_PLUMB_OK(plumb_evaluator_run(one.get, inputs + 4, targets + 4, 2, &second, err));
  EXPECT_NEAR(both, (2 * first + second) / 3, 1e-6);
  const float* const together = plumb_evaluator_logits(two.get) + 4 * kVocabularySize;
  const float* const alone = plumb_evaluator_logits(one.get);
  EXPECT_EQ(std::vector<float>(together, together + 2 * kVocabularySize),
            std::vector<float>(alone, alone + 2 * kVocabularySize));
  // Without types all tokens have type 0.
  const int32_t zeros[2] = {};
  double without = 0, with = 0;
  EXPECT_PLUMB_OK(plumb_evaluator_set_types(one.get, nullptr, 0, err));
  EXPECT_PLUMB_OK(plumb_evaluator_run(one.get, inputs, targets, 2, &without, err));
  EXPECT_PLUMB_OK(plumb_evaluator_set_types(one.get, zeros, 2, err));
  EXPECT_PLUMB_OK(plumb_evaluator_run(one.get, inputs, targets, 2, &with, err));
  EXPECT_EQ(with, without);
}

TEST_F(BidirectionalApiTest, WrongInputsAndTypesAreRefused) {
  const ModelHandle model = Bert(), causal = Bert("");
  const EvaluatorHandle evaluator = Evaluate(model.get, 2), other = Evaluate(causal.get, 2);
  const auto run = [](const EvaluatorHandle& of, std::vector<int32_t> inputs) {
    return Fails(PLUMB_STATUS_INVALID_ARGUMENT, [&](plumb_error** error) {
      const int32_t targets[] = {1, 1, 1, 1};
      double loss = 0;
      return plumb_evaluator_run(of.get, inputs.data(), targets, 4, &loss, error);
    });
  };
  EXPECT_EQ(run(evaluator, {1, 2, -1, 3}), "inputs: id 3 at 3 comes after -1, the end of its row");
  EXPECT_EQ(run(evaluator, {1, -2, 1, 1}),
            "inputs: id -2 at 1 is not in the vocabulary of 5, nor -1");
  EXPECT_EQ(run(other, {1, -1, 1, 1}), "inputs: id -1 at 1 is not in the vocabulary of 5");
  const auto types = [](const EvaluatorHandle& of, std::vector<int32_t> given) {
    return Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_evaluator_set_types, of.get, given.data(),
                 given.size());
  };
  EXPECT_EQ(types(evaluator, {0, 1, 2, 0}), "types: 2 at 2 is not in 0..1");
  EXPECT_EQ(types(evaluator, {0, -1}), "types: -1 at 1 is not in 0..1");
  EXPECT_EQ(types(other, {0}), "types: the model has no token_types");
  const int32_t two[] = {0, 1};
  EXPECT_PLUMB_OK(plumb_evaluator_set_types(evaluator.get, two, 2, err));
  EXPECT_EQ(run(evaluator, {1, 2, 1, 3}),
            "plumb_evaluator_set_types gave 2 token types for 4 inputs");
  EXPECT_EQ(
      Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_evaluator_set_types, evaluator.get, nullptr, 2),
      "types is NULL");
}

// A recipe for masked tokens does not read the targets, so invalid or missing targets are no
// errors.
TEST_F(BidirectionalApiTest, RecipeMasksTargets) {
  const ModelHandle model = Bert();
  const plumb_trainer_options options =
      Recipe("max_steps: 9 batch_size: 2 masked_tokens { share: 0.4 }", 5);
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  const int32_t inputs[] = {1, 2, 3, 0, 1, 3, 2, -1, -1, -1};
  const std::vector<int32_t> none(10, -1);
  auto info = MakeStruct<plumb_step_info>();
  EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, inputs, none.data(), 10, &info, err));
  EXPECT_EQ(info.tokens, 2 + 1);
  EXPECT_TRUE(std::isfinite(info.loss));
  EXPECT_GT(info.loss, 0);
  const std::vector<int32_t> padding(10, -1);
  EXPECT_EQ(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_step, trainer.get, padding.data(),
                  none.data(), 10, &info),
            "step 2: has no token that can be masked; a step needs one");
  const int32_t gap[] = {1, -1, 3, 0, 1, 3, 2, -1, -1, -1};
  EXPECT_EQ(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_step, trainer.get, gap, none.data(),
                  10, &info),
            "inputs: micro-batch 0: id 3 at 2 comes after -1, the end of its row");
}

// A host may provide targets.
TEST_F(BidirectionalApiTest, AcceptsTargetsOfTheHost) {
  const ModelHandle model = Bert();
  const plumb_trainer_options options = Recipe("max_steps: 9 batch_size: 1 learning_rate: 0.01", 4);
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  const int32_t inputs[] = {1, 2, 3, -1}, targets[] = {-1, 4, -1, -1};
  double first = 0, last = 0;
  for (int i = 0; i < 9; ++i) {
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, inputs, targets, 4, &info, err));
    EXPECT_EQ(info.tokens, 1);
    (i == 0 ? first : last) = info.loss;
  }
  EXPECT_LT(last, first);
}

}  // namespace
}  // namespace plumb
