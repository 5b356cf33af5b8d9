// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/update_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

class UpdatePlanTest : public ::testing::Test {
 protected:
  static std::string Text() {
    TinyModel model;  // d_model 8, d_ff 12, two layers
    model.more = "mlp { bias: true }";
    return model.Text();
  }

  absl::StatusOr<UpdatePlan> Plan(const std::string& recipe) const {
    const absl::StatusOr<TrainSpec> spec = ParseTrainSpec(recipe, "t.pbtxt", {});
    if (!spec.ok()) return spec.status();
    return PlanUpdates(*spec, context_->model, context_->parameters);
  }
  std::string Error(const std::string& recipe) const {
    const absl::StatusOr<UpdatePlan> plan = Plan(recipe);
    if (plan.ok()) return "no error";
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  }
  // Returns the update of one parameter.
  ParameterUpdate Of(const std::string& recipe, const std::string& name) const {
    const absl::StatusOr<UpdatePlan> plan = Plan(recipe);
    if (!plan.ok()) {
      ADD_FAILURE() << plan.status();
      return {};
    }
    for (size_t i = 0; i < context_->parameters.size(); ++i) {
      if (context_->parameters[i].name == name) return plan->parameters[i];
    }
    ADD_FAILURE() << "no parameter " << name;
    return {};
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  const std::unique_ptr<ModelContext> context_ = MakeContext(runtime_.get(), Text());
};

constexpr char kQ[] = "layers.0.attention.q.weight";
constexpr char kNorm[] = "layers.1.mlp.norm.weight";
constexpr char kDownBias[] = "layers.1.mlp.down.bias";

TEST_F(UpdatePlanTest, DefaultsFollowTheRecipe) {
  const std::string recipe = "weight_decay: 0.2 beta1: 0.8 beta2: 0.9 eps: 1e-6 grad_clip: 3";
  const ParameterUpdate q = Of(recipe, kQ), norm = Of(recipe, kNorm);
  EXPECT_EQ(q.rule, -1);
  EXPECT_EQ(q.weight_decay, 0.2);
  EXPECT_EQ(norm.weight_decay, 0);
  EXPECT_EQ(Of(recipe + " weight_decay_on: EVERYTHING", kNorm).weight_decay, 0.2);
  for (const ParameterUpdate& update : {q, norm}) {
    EXPECT_EQ(update.LearningRate(0.5), 0.5);
    EXPECT_EQ(update.beta1, 0.8);
    EXPECT_EQ(update.beta2, 0.9);
    EXPECT_EQ(update.eps, 1e-6);
    EXPECT_EQ(update.clip_group, 0);
  }
  EXPECT_EQ(Plan(recipe)->clips, std::vector<double>{3});
}

// Initial values and rules have the same fans, also of projections to one channel, and of a tied
// head with an embedding of its own width.
TEST_F(UpdatePlanTest, ReadsTheFansOfInitialValues) {
  TinyModel model;
  model.placement = "gated";
  model.more =
      "tie_embeddings: true head_bias: true embedding_width: '6' placement { name: 'gated' "
      "extends: 'pre' linear { name: 'hg' out: '1' bias: true } "
      "inside { point: 'mlp.hidden' rule: 'hidden = hidden * sigmoid(hg(hidden))' } }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const TrainSpec spec =
      ParseTrainSpec(
          "learning_rate: 1 rule { match: '*.hg.*' learning_rate: 'fan_in' "
          "weight_decay: 'fan_out' } rule { match: 'head.bias' learning_rate: 'fan_in' "
          "weight_decay: 'fan_out' }",
          "t.pbtxt", {})
          .value();
  const auto plan = PlanUpdates(spec, context->model, context->parameters);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int seen = 0;
  for (size_t i = 0; i < context->parameters.size(); ++i) {
    const ParameterSpec& parameter = context->parameters[i];
    if (plan->parameters[i].rule < 0) continue;
    ++seen;
    const bool is_head = parameter.name == "head.bias";
    EXPECT_EQ(plan->parameters[i].lr_offset, is_head ? 6 : 12) << parameter.name;
    EXPECT_EQ(plan->parameters[i].weight_decay, is_head ? parameter.shape[0] : 1) << parameter.name;
    EXPECT_EQ(parameter.init.b, 1 / std::sqrt(plan->parameters[i].lr_offset)) << parameter.name;
  }
  EXPECT_EQ(seen, 5);
}

TEST_F(UpdatePlanTest, WeightDecayOfLearnedValues) {
  const std::string table = "index: 'i = 0..1' index: 'j = 0..1' init: 1";
  TinyModel model;
  model.placement = "weighted";
  model.norm = "";
  model.more = absl::StrCat("placement { name: 'weighted' learned { name: 'table' ", table,
                            " } learned { name: 'kept' ", table,
                            " weight_decay: false } learned { name: 'gate' init: 1 weight_decay: "
                            "true } each: 'x = kept[0, 1] * x + gate * table[1, 0] * f(x)' }");
  const auto context = MakeContext(runtime_.get(), model.Text());
  const auto decayed = [&context](const std::string& recipe) {
    const TrainSpec spec = ParseTrainSpec(recipe, "t.pbtxt", {}).value();
    const UpdatePlan plan = PlanUpdates(spec, context->model, context->parameters).value();
    std::vector<std::string> names;
    for (size_t i = 0; i < plan.parameters.size(); ++i) {
      const ParameterSpec& parameter = context->parameters[i];
      if (parameter.role == ParameterSpec::Role::kLearned && plan.parameters[i].weight_decay > 0) {
        names.push_back(parameter.name);
      }
    }
    return names;
  };
  const std::vector<std::string> names = {"layers.0.attention.gate", "layers.0.attention.table",
                                          "layers.0.mlp.gate",       "layers.0.mlp.table",
                                          "layers.1.attention.gate", "layers.1.attention.table",
                                          "layers.1.mlp.gate",       "layers.1.mlp.table"};
  EXPECT_THAT(decayed("weight_decay: 0.2"), UnorderedElementsAreArray(names));
  EXPECT_THAT(decayed("weight_decay: 0.2 weight_decay_on: EVERYTHING"),
              UnorderedElementsAreArray(names));
}

TEST_F(UpdatePlanTest, ExpressionsReadTheModelTheTensorAndTheRecipe) {
  const auto rate = [this](const std::string& expression, const char* name) {
    return Of(
        absl::StrCat("learning_rate: 0.01 let: 'base = 4' rule { match: '*' tensors: MATRICES "
                     "learning_rate: '",
                     expression, "' } rule { match: '*.bias' learning_rate: '", expression, "' }"),
        name);
  };
  EXPECT_DOUBLE_EQ(rate("0.1 * lr", kQ).LearningRate(0.01), 0.001);
  EXPECT_DOUBLE_EQ(rate("lr * base / fan_in", kQ).LearningRate(0.01), 0.005);
  EXPECT_DOUBLE_EQ(rate("lr / fan_out", "layers.0.mlp.up.weight").LearningRate(0.01), 0.01 / 12);
  EXPECT_DOUBLE_EQ(rate("lr / fan_in", kDownBias).LearningRate(0.01), 0.01 / 12);
  EXPECT_DOUBLE_EQ(rate("lr / (n_layer * d_model) + 1e-3", kQ).LearningRate(0.01), 0.001625);
  EXPECT_DOUBLE_EQ(rate("0.002", kQ).LearningRate(0.01), 0.002);
  EXPECT_EQ(rate("0", kQ).LearningRate(0.01), 0);
  EXPECT_NEAR(rate("0.1 - 9 * lr", kQ).LearningRate(0.01), 0.01, 1e-12);

  const char layers[] =
      "rule { match: 'layers.*' learning_rate: 'lr / layer' weight_decay: 'wd * layer' "
      "beta1: 'beta1 / 2' beta2: '0.5' eps: 'eps / layer' }";
  const ParameterUpdate first = Of(layers, kQ), second = Of(layers, kNorm);
  EXPECT_DOUBLE_EQ(first.LearningRate(1), 1);
  EXPECT_DOUBLE_EQ(second.LearningRate(1), 0.5);
  EXPECT_DOUBLE_EQ(first.weight_decay, 0.1);
  EXPECT_DOUBLE_EQ(second.weight_decay, 0.2);  // decay of a vector, because the rule sets it
  EXPECT_DOUBLE_EQ(second.beta1, 0.45);
  EXPECT_DOUBLE_EQ(second.beta2, 0.5);
  EXPECT_DOUBLE_EQ(second.eps, 5e-9);
  EXPECT_EQ(Of(layers, "head.weight").rule, -1);
}

TEST_F(UpdatePlanTest, FirstMatchingRuleApplies) {
  const char recipe[] =
      "rule { match: '*.norm.weight' learning_rate: 'lr / 10' }"
      "rule { match: 'layers.*' tensors: VECTORS weight_decay: '0.3' }"
      "rule { match: '*' weight_decay: '0' clip: '0.5' }";
  const ParameterUpdate norm = Of(recipe, kNorm), bias = Of(recipe, kDownBias), q = Of(recipe, kQ);
  EXPECT_EQ(norm.rule, 0);
  EXPECT_EQ(norm.weight_decay, 0);
  EXPECT_EQ(bias.rule, 1);
  EXPECT_EQ(bias.weight_decay, 0.3);
  EXPECT_EQ(bias.clip_group, 0);
  EXPECT_EQ(q.rule, 2);
  EXPECT_EQ(q.weight_decay, 0);
  EXPECT_EQ(q.clip_group, 1);
  EXPECT_EQ(Plan(recipe)->clips, (std::vector<double>{1, 0.5}));
}

TEST_F(UpdatePlanTest, FrozenTensorsHaveNoUpdateUnlessAnEarlierRuleMatches) {
  const std::string recipe =
      "optimizer: MUON rule { match: '*.q.weight' } rule { match: '*.norm.weight' clip: '0.5' } "
      "rule { match: '*' freeze: true }";
  EXPECT_FALSE(Of(recipe, kQ).is_frozen);
  EXPECT_EQ(Of(recipe, kQ).optimizer, OptimizerKind::kMuon) << "the recipe's";
  EXPECT_EQ(Of(recipe, kQ).LearningRate(0.1), Of("optimizer: MUON", kQ).LearningRate(0.1));
  EXPECT_FALSE(Of(recipe, kNorm).is_frozen);
  EXPECT_TRUE(Of(recipe, kDownBias).is_frozen);
  const auto plan = Plan(recipe);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t i = 0, frozen = 0; i < plan->parameters.size(); ++i) {
    const std::string& name = context_->parameters[i].name;
    EXPECT_EQ(plan->parameters[i].is_frozen,
              !absl::StrContains(name, ".q.") && !absl::StrContains(name, ".norm."));
    if (!plan->parameters[i].is_frozen) continue;
    EXPECT_EQ(plan->frozen[frozen++], name);
  }
  EXPECT_TRUE(Plan("rule { match: '*' freeze: false }")->frozen.empty());
}

TEST_F(UpdatePlanTest, RefusesToFreezeAllOrNormalizeFrozen) {
  EXPECT_THAT(
      Error("max_steps: 3\nrule { match: 'layers.*' freeze: true }\n"
            "rule { match: '*' freeze: true }"),
      HasSubstr("t.pbtxt:3:8: rule: nothing is left to train, as every tensor is frozen; put "
                "a rule before it that matches those to train: rule { match: "
                "\"head.weight\" }"));
  EXPECT_THAT(
      Error("rule { match: '*.q.*' freeze: true }\nnormalize { match: '*.q.*' }"),
      HasSubstr("t.pbtxt:2:13: normalize: layers.0.attention.q.weight is frozen by the rule "
                "for \"*.q.*\", and normalizing would change it; drop one"));
}

TEST_F(UpdatePlanTest, ARuleWithoutMatchesIsAnError) {
  EXPECT_THAT(Error("max_steps: 3\nrule { match: 'layers.0.atention.q.weight' clip: '1' }"),
              HasSubstr("t.pbtxt:2:8: rule: matches no tensor; did you mean "
                        "\"layers.0.attention.q.weight\"?"));
  EXPECT_THAT(Error("rule { match: '*.gamma' clip: '1' }"),
              HasSubstr("rule: matches no tensor; names look like embedding.token.weight, "
                        "head.weight; plumb describe lists them"));
  EXPECT_THAT(Error("rule { match: '*.norm.weight' tensors: MATRICES clip: '1' }"),
              HasSubstr("rule: matches no matrix"));
  EXPECT_THAT(
      Error("rule { match: '*.q.*' clip: '1' }\nrule { match: '*.q.weight' clip: '2' }"),
      HasSubstr("t.pbtxt:2:8: rule: matches only tensors that earlier rules match: "
                "layers.0.attention.q.weight belongs to the rule for \"*.q.*\" (t.pbtxt:1:8)"));
}

TEST_F(UpdatePlanTest, InvalidExpressionsHaveLocations) {
  const auto error = [this](const std::string& field, const std::string& match = "*") {
    return Error(absl::StrCat("rule { match: '", match, "'\n  ", field, " }"));
  };
  EXPECT_THAT(error("learning_rate: 'lr * d_modl'"),
              HasSubstr("t.pbtxt:2:3: learning_rate: unknown scalar \"d_modl\"; did you mean "
                        "\"d_model\"?\n  lr * d_modl\n       ^"));
  EXPECT_THAT(error("learning_rate: 'lr * layer'"),
              HasSubstr("unknown scalar \"layer\"; embedding.token.weight is in no layer"));
  EXPECT_THAT(error("learning_rate: 'lr / fan_in'", "*.norm.weight"),
              HasSubstr("is neither a weight nor the bias of one"));
  EXPECT_THAT(error("weight_decay: '0.1 * lr'"),
              HasSubstr("unknown scalar \"lr\"; it has a value in learning_rate only"));
  EXPECT_THAT(error("clip: 'fan_in'"), HasSubstr("the bound is one for all tensors of the rule"));
  EXPECT_THAT(error("learning_rate: 'sqrt(lr)'"), HasSubstr("learning_rate is not linear in lr"));
  EXPECT_THAT(error("learning_rate: 'max(lr, 1e-4)'"), HasSubstr("is not linear in lr"));
  EXPECT_THAT(error("learning_rate: '-lr'"), HasSubstr("is negative: -0.001 at lr = 0.001"));
  EXPECT_THAT(Error("learning_rate: 3 rule { match: '*' learning_rate: '1e-3 - 5e-4 * lr' }"),
              HasSubstr("is negative: -0.0005 at lr = 3"));
  EXPECT_THAT(error("learning_rate: '1 / lr'"), HasSubstr("division by zero"));
  EXPECT_THAT(error("weight_decay: '-1'"), HasSubstr("it must be zero or positive"));
  for (const char* beta : {"beta1: '1'", "beta1: '1 - 1e-9'"}) {
    EXPECT_THAT(error(beta), HasSubstr("it must be in [0, 1)"));
  }
  EXPECT_THAT(error("eps: '0'"), HasSubstr("it must be positive"));
  EXPECT_THAT(error("clip: '-2'"), HasSubstr("clip is -2; it must be zero or positive"));
}

TEST_F(UpdatePlanTest, MuonIsForTheMatricesOfLayers) {
  const std::string recipe =
      "weight_decay: 0.2 optimizer: MUON muon { learning_rate: '20 * lr' weight_decay: 'wd / 2' } ";
  const ParameterUpdate q = Of(recipe, kQ);
  EXPECT_EQ(q.optimizer, OptimizerKind::kMuon);
  EXPECT_EQ(q.LearningRate(0.1), 2);
  EXPECT_EQ(q.weight_decay, 0.1);
  for (const char* name : {kNorm, kDownBias, "embedding.token.weight", "head.weight"}) {
    const ParameterUpdate update = Of(recipe, name);
    EXPECT_EQ(update.optimizer, OptimizerKind::kAdamW) << name;
    EXPECT_EQ(update.LearningRate(0.1), 0.1) << name;
  }
  const std::string ruled = recipe +
                            "rule { match: '*.q.weight' optimizer: ADAMW }"
                            "rule { match: 'layers.*.k.weight' learning_rate: 'lr' }"
                            "rule { match: 'head.weight' optimizer: MUON weight_decay: '0' }";
  EXPECT_EQ(Of(ruled, kQ).optimizer, OptimizerKind::kAdamW);
  EXPECT_EQ(Of(ruled, kQ).LearningRate(0.1), 0.1);
  EXPECT_EQ(Of(ruled, "layers.0.attention.k.weight").optimizer, OptimizerKind::kMuon);
  EXPECT_EQ(Of(ruled, "layers.0.attention.k.weight").LearningRate(0.1), 0.1);
  EXPECT_EQ(Of(ruled, "layers.0.attention.k.weight").weight_decay, 0.1);
  EXPECT_EQ(Of(ruled, "head.weight").LearningRate(0.1), 2);
  EXPECT_EQ(Of(ruled, "head.weight").weight_decay, 0);
  EXPECT_THAT(
      Error("rule { match: 'layers.*' optimizer: MUON }"),
      HasSubstr("rule: MUON is for matrices, and layers.0.attention.norm.weight is not one"));
  EXPECT_THAT(
      Error("optimizer: MUON rule { match: '*.q.weight' beta1: '0.5' }"),
      HasSubstr("beta1 is a field of AdamW, and layers.0.attention.q.weight is updated by Muon"));
  EXPECT_THAT(Error("optimizer: MUON muon { learning_rate: 'lr * lr' }"),
              HasSubstr("learning_rate is not linear in lr"));
}

TEST_F(UpdatePlanTest, MatricesAreNormalizedOnceAndByRowsOrColumns) {
  const auto plan = Plan("normalize { match: '*.q.*' } normalize { match: '*.down.*' axis: OUT }");
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t i = 0; i < plan->parameters.size(); ++i) {
    const std::string& name = context_->parameters[i].name;
    EXPECT_EQ(plan->parameters[i].unit_length, absl::StrContains(name, ".q.") ? UnitLength::kRows
                                               : absl::StrContains(name, ".down.weight")
                                                   ? UnitLength::kColumns
                                                   : UnitLength::kNothing)
        << name;
  }
  EXPECT_THAT(Error("normalize { match: '*.norm.*' }"),
              HasSubstr("t.pbtxt:1:13: normalize: matches no matrix"));
  EXPECT_THAT(
      Error("normalize { match: '*.q.*' }\nnormalize { match: 'layers.0.*' }"),
      HasSubstr("t.pbtxt:2:13: normalize: layers.0.attention.q.weight is normalized already, "
                "by \"*.q.*\""));
}

}  // namespace
}  // namespace plumb
