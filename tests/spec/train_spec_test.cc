// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/train_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

std::string OverrideError(const Overrides& overrides) {
  const absl::StatusOr<TrainSpec> spec = ParseTrainSpec("", "t.pbtxt", overrides);
  if (spec.ok()) return "no error";
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

TEST(TrainSpecTest, FillsInTheDefaults) {
  const TrainSpec s = ParseTrainSpec("", "t.pbtxt", {}).value();
  EXPECT_EQ(s.max_steps, 1000);
  EXPECT_EQ(s.batch_size, 1);
  EXPECT_EQ(s.gradient_accumulation_steps, 1);
  EXPECT_EQ(s.learning_rate, 1e-3);
  EXPECT_EQ(s.beta1, 0.9);
  EXPECT_EQ(s.beta2, 0.95);
  EXPECT_EQ(s.eps, 1e-8);
  EXPECT_EQ(s.weight_decay, 0.1);
  EXPECT_FALSE(s.decay_everything);
  EXPECT_EQ(s.grad_clip, 1);
  EXPECT_EQ(s.schedule, ScheduleKind::kConstant);
  EXPECT_EQ(s.warmup_steps, 0);
  EXPECT_EQ(s.min_learning_rate, 0);
  EXPECT_EQ(s.decay_steps, 1000);
  EXPECT_EQ(s.seed, 1u);
  EXPECT_EQ(s.format, DataFormat::kText);
  EXPECT_EQ(s.vocabulary, VocabularyKind::kCharacters);
  EXPECT_EQ(s.val_fraction, 0.1);
  EXPECT_FALSE(s.keep_order);
  EXPECT_EQ(s.eval_interval, 0);
  EXPECT_EQ(s.eval_batches, 0);
  EXPECT_EQ(s.checkpoint_interval, 0);
  EXPECT_EQ(s.keep_checkpoints, 2);
  EXPECT_EQ(s.on_divergence, OnDivergence::kStop);
  EXPECT_EQ(s.dtype, DType::kF32);
  EXPECT_FALSE(s.recompute_blocks);
}

TEST(TrainSpecTest, ExplicitZerosAreKept) {
  EXPECT_EQ(OverrideError({{"max_steps", "0"}}), "t.pbtxt: max_steps must be at least 1");
}

TEST(TrainSpecTest, UnitsDivideAStepsSequences) {
  const TrainSpec s =
      ParseTrainSpec("batch_size: 6 gradient_accumulation_steps: 2", "t", {}).value();
  EXPECT_EQ(s.num_units(), 2);
  EXPECT_EQ(s.unit_rows(), 6);
}

constexpr char kEverything[] =
    "max_steps: 200 batch_size: 8 gradient_accumulation_steps: 2 learning_rate: 0.01 beta1: 0.85\n"
    "units: 16\n"
    "beta2: 0.99 eps: 1e-5 weight_decay: 0.123456789 weight_decay_on: EVERYTHING grad_clip: 0.5\n"
    "schedule: COSINE warmup_steps: 10 min_learning_rate: 0.001 decay_steps: 150\n"
    "seed: 18446744073709551615 eval_interval: 20 eval_batches: 4 checkpoint_interval: 50\n"
    "keep_checkpoints: 3 dtype: BF16 recompute: BLOCK\n"
    "on_divergence: SKIP max_divergences: 4\n"
    "label_smoothing: 0.1 z_loss: 1e-4 ema_decay: 0.999 router_correction_rate: 0.002\n"
    "data { format: DOCUMENTS vocabulary: BYTES val_fraction: 0.25 keep_order: true }\n";

TEST(TrainSpecTest, TakesGivenValues) {
  const TrainSpec s = ParseTrainSpec(kEverything, "t.pbtxt", {}).value();
  EXPECT_EQ(s.max_steps, 200);
  EXPECT_EQ(s.batch_size, 8);
  EXPECT_EQ(s.gradient_accumulation_steps, 2);
  EXPECT_EQ(s.num_units(), 16);
  EXPECT_EQ(s.unit_rows(), 1);
  EXPECT_EQ(s.learning_rate, 0.01);
  EXPECT_EQ(s.beta1, 0.85);
  EXPECT_EQ(s.beta2, 0.99);
  EXPECT_EQ(s.eps, 1e-5);
  EXPECT_EQ(s.weight_decay, 0.123456789);
  EXPECT_TRUE(s.decay_everything);
  EXPECT_EQ(s.grad_clip, 0.5);
  EXPECT_EQ(s.schedule, ScheduleKind::kCosine);
  EXPECT_EQ(s.warmup_steps, 10);
  EXPECT_EQ(s.min_learning_rate, 0.001);
  EXPECT_EQ(s.decay_steps, 150);
  EXPECT_EQ(s.seed, 18446744073709551615u);
  EXPECT_EQ(s.label_smoothing, 0.1);
  EXPECT_EQ(s.z_loss, 1e-4);
  EXPECT_EQ(s.ema_decay, 0.999);
  EXPECT_EQ(s.router_correction_rate, 0.002);
  EXPECT_EQ(s.format, DataFormat::kDocuments);
  EXPECT_EQ(s.vocabulary, VocabularyKind::kBytes);
  EXPECT_EQ(s.val_fraction, 0.25);
  EXPECT_TRUE(s.keep_order);
  EXPECT_EQ(s.eval_interval, 20);
  EXPECT_EQ(s.eval_batches, 4);
  EXPECT_EQ(s.checkpoint_interval, 50);
  EXPECT_EQ(s.keep_checkpoints, 3);
  EXPECT_EQ(s.on_divergence, OnDivergence::kSkip);
  EXPECT_EQ(s.max_divergences, 4);
  EXPECT_EQ(s.dtype, DType::kBF16);
  EXPECT_TRUE(s.recompute_blocks);
}

TEST(TrainSpecTest, ZerosAreValidValues) {
  const TrainSpec s = ParseTrainSpec(
                          "learning_rate: 0 beta1: 0 beta2: 0 weight_decay: 0 grad_clip: 0 seed: 0 "
                          "keep_checkpoints: 0 data { val_fraction: 0 }",
                          "t.pbtxt", {})
                          .value();
  EXPECT_EQ(s.learning_rate, 0);
  EXPECT_EQ(s.beta1, 0);
  EXPECT_EQ(s.beta2, 0);
  EXPECT_EQ(s.weight_decay, 0);
  EXPECT_EQ(s.grad_clip, 0);
  EXPECT_EQ(s.seed, 0u);
  EXPECT_EQ(s.keep_checkpoints, 0);
  EXPECT_EQ(s.val_fraction, 0);
}

TEST(TrainSpecTest, TextRoundTrips) {
  for (const char* text : {"", kEverything, "schedule: LINEAR learning_rate: 0 seed: 0",
                           "learning_rate: 0.30000000000000004 max_steps: 2147483647"}) {
    const TrainSpec s = ParseTrainSpec(text, "t.pbtxt", {}).value();
    const absl::StatusOr<TrainSpec> again = ParseTrainSpec(s.ToText(), "run/train.pbtxt", {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->ToText(), s.ToText());
    EXPECT_EQ(again->learning_rate, s.learning_rate);
    EXPECT_EQ(again->max_steps, s.max_steps);
    EXPECT_EQ(again->decay_steps, s.decay_steps);
    EXPECT_EQ(again->seed, s.seed);
    EXPECT_EQ(again->schedule, s.schedule);
    EXPECT_EQ(again->decay_everything, s.decay_everything);
    EXPECT_EQ(again->dtype, s.dtype);
    EXPECT_EQ(again->recompute_blocks, s.recompute_blocks);
    EXPECT_EQ(again->keep_order, s.keep_order);
    EXPECT_EQ(again->label_smoothing, s.label_smoothing);
    EXPECT_EQ(again->z_loss, s.z_loss);
    EXPECT_EQ(again->ema_decay, s.ema_decay);
    EXPECT_EQ(again->router_correction_rate, s.router_correction_rate);
  }
}

constexpr char kRules[] =
    "let: 'base = 256' let: 'm = d_model / base'\n"
    "rule { match: '*.norm.weight' learning_rate: '0.1 * lr' weight_decay: '0' }\n"
    "rule { match: '*' tensors: MATRICES beta1: '0.8' beta2: '0.9' eps: 'eps / m' clip: '1.5' }\n"
    "rule { match: '*' tensors: VECTORS clip: '2' }\n"
    "rule { match: 'head.*' } rule { match: 'embedding.*' freeze: true }\n"
    "normalize { match: '*.q.weight' axis: OUT } normalize { match: 'head.weight' }\n";

TEST(TrainSpecTest, RulesRoundTripInOrder) {
  const TrainSpec s = ParseTrainSpec(kRules, "t.pbtxt", {}).value();
  ASSERT_EQ(s.rules.size(), 5u);
  EXPECT_EQ(s.rules[0].match.value, "*.norm.weight");
  EXPECT_EQ(s.rules[0].field(RuleField::kWeightDecay)->text.value, "0");
  EXPECT_FALSE(s.rules[0].field(RuleField::kClip).has_value());
  EXPECT_EQ(s.rules[1].tensors, TensorClass::kMatrices);
  EXPECT_EQ(s.rules[2].tensors, TensorClass::kVectors);
  const TrainSpec again = ParseTrainSpec(s.ToText(), "run/train.pbtxt", {}).value();
  EXPECT_EQ(again.ToText(), s.ToText());
  ASSERT_EQ(again.rules.size(), 5u);
  for (const TrainSpec* spec : {&s, &again}) {
    EXPECT_FALSE(spec->rules[3].freezes);
    EXPECT_TRUE(spec->rules[4].freezes);
  }
  EXPECT_EQ(again.lets.size(), 2u);
  ASSERT_EQ(again.normalize.size(), 2u);
  EXPECT_EQ(again.normalize[0].match.value, "*.q.weight");
  EXPECT_TRUE(again.normalize[0].columns);
  EXPECT_FALSE(again.normalize[1].columns);
  for (const RuleField field : kRuleFields) {
    for (size_t r = 0; r < 3; ++r) {
      ASSERT_EQ(again.rules[r].field(field).has_value(), s.rules[r].field(field).has_value());
      if (!s.rules[r].field(field).has_value()) continue;
      EXPECT_EQ(again.rules[r].field(field)->root.ToString(),
                s.rules[r].field(field)->root.ToString());
    }
  }
}

TEST(TrainSpecTest, OverridesSetRulesAndLets) {
  const TrainSpec s = ParseTrainSpec(
                          "let: 'a = 1' let: 'b = a' let: 'a = 2' rule { match: '*' "
                          "clip: '1' }",
                          "t.pbtxt", {{"rule[0].clip", "7"}})
                          .value();
  EXPECT_EQ(s.rules[0].field(RuleField::kClip)->text.value, "7");
  ASSERT_EQ(s.lets.size(), 2u);
  EXPECT_EQ(s.lets[0].text.value, "a = 2");
}

TEST(TrainSpecTest, ImportedRulesFollowOwnRules) {
  const TrainSpec s =
      ParseTrainSpec("import: 'mup' let: 'base_width = 64' rule { match: '*.q.*' clip: '1' }",
                     "t.pbtxt", {})
          .value();
  ASSERT_EQ(s.rules.size(), 2u);
  EXPECT_EQ(s.rules[0].match.value, "*.q.*");
  EXPECT_EQ(s.rules[1].match.value, "layers.*");
  EXPECT_EQ(s.rules[1].match.place.file, "mup.pbtxt");
  ASSERT_EQ(s.lets.size(), 2u);
  EXPECT_EQ(s.lets[0].text.value, "base_width = 64");
  // The stored recipe of a run has no imports.
  const TrainSpec again = ParseTrainSpec(s.ToText(), "run/train.pbtxt", {}).value();
  EXPECT_EQ(again.ToText(), s.ToText());
  EXPECT_EQ(again.ToText().find("import"), std::string::npos);
  EXPECT_EQ(again.rules.size(), 2u);
}

TEST(TrainSpecTest, MuonRoundTrips) {
  const TrainSpec s =
      ParseTrainSpec(
          "optimizer: MUON muon { momentum: 0.9 nesterov: false newton_schulz_steps: 3 "
          "scale: MATCH_ADAMW learning_rate: '20 * lr' weight_decay: 'wd / 2' } "
          "rule { match: '*.q.weight' optimizer: ADAMW }",
          "t.pbtxt", {})
          .value();
  EXPECT_EQ(s.optimizer, OptimizerKind::kMuon);
  EXPECT_EQ(s.rules[0].optimizer, OptimizerKind::kAdamW);
  const TrainSpec again = ParseTrainSpec(s.ToText(), "run/train.pbtxt", {}).value();
  EXPECT_EQ(again.ToText(), s.ToText());
  EXPECT_EQ(again.muon.momentum, 0.9);
  EXPECT_FALSE(again.muon.nesterov);
  EXPECT_EQ(again.muon.newton_schulz_steps, 3);
  EXPECT_TRUE(again.muon.matches_adamw);
  EXPECT_EQ(again.muon.learning_rate->text.value, "20 * lr");
  EXPECT_EQ(again.muon.weight_decay->text.value, "wd / 2");
  const TrainSpec plain = ParseTrainSpec("", "t.pbtxt", {}).value();
  EXPECT_EQ(plain.muon.momentum, 0.95);
  EXPECT_TRUE(plain.muon.nesterov);
  EXPECT_EQ(plain.muon.newton_schulz_steps, 5);
  EXPECT_FALSE(plain.muon.matches_adamw);
  EXPECT_EQ(plain.ToText().find("muon"), std::string::npos);
}

TEST(TrainSpecTest, MuonHasItsDefaultRate) {
  const auto spec = [](const std::string& text) {
    return ParseTrainSpec(text, "t.pbtxt", {}).value();
  };
  for (const char* text : {"optimizer: MUON", "rule { match: 'head.weight' optimizer: MUON }"}) {
    const TrainSpec s = spec(text);
    EXPECT_EQ(s.learning_rate, 1e-3) << "AdamW's";
    ASSERT_TRUE(s.muon.learning_rate.has_value()) << text;
    EXPECT_EQ(s.muon.learning_rate->text.value, "20 * lr");
    // A run stores the default, so a later one does not change its rate.
    EXPECT_THAT(s.ToText(), ::testing::HasSubstr("learning_rate: \"20 * lr\""));
    EXPECT_EQ(spec(s.ToText()).ToText(), s.ToText());
  }
  for (const char* text :
       {"optimizer: MUON learning_rate: 0.02", "optimizer: MUON muon { scale: MATCH_ADAMW }", ""}) {
    EXPECT_FALSE(spec(text).muon.learning_rate.has_value()) << text;
    EXPECT_FALSE(spec(spec(text).ToText()).muon.learning_rate.has_value())
        << text << ": a stored recipe sets learning_rate";
  }
  EXPECT_EQ(spec("optimizer: MUON muon { learning_rate: '5 * lr' }").muon.learning_rate->text.value,
            "5 * lr");
}

TEST(TrainSpecTest, EveryScheduleRoundTrips) {
  for (const char* text :
       {"schedule: WSD cooldown_steps: 7 cooldown: ONE_MINUS_SQRT warmup: MULTIPLIES",
        "schedule: WSD cooldown_steps: 7 cooldown: COSINE warmup: FIRST",
        "schedule: WSD cooldown_steps: 7", "schedule: INVERSE_SQRT warmup_steps: 3",
        "schedule: LINEAR warmup: MULTIPLIES warmup_steps: 3"}) {
    const TrainSpec s = ParseTrainSpec(text, "t.pbtxt", {}).value();
    const TrainSpec again = ParseTrainSpec(s.ToText(), "run/train.pbtxt", {}).value();
    EXPECT_EQ(again.ToText(), s.ToText());
    EXPECT_EQ(again.schedule, s.schedule);
    EXPECT_EQ(again.cooldown, s.cooldown);
    EXPECT_EQ(again.cooldown_steps, s.cooldown_steps);
    EXPECT_EQ(again.warmup_multiplies, s.warmup_multiplies);
  }
  EXPECT_TRUE(ParseTrainSpec("warmup: MULTIPLIES", "", {})->warmup_multiplies);
}

TEST(TrainSpecTest, OverridesComeLastAndInOrder) {
  const TrainSpec s = ParseTrainSpec("max_steps: 5 learning_rate: 1", "t.pbtxt",
                                     {{"max_steps", "6"},
                                      {"learning_rate", "0.5"},
                                      {"max_steps", "7"},
                                      {"schedule", "cosine"},
                                      {"data.format", "DOCUMENTS"}})
                          .value();
  EXPECT_EQ(s.max_steps, 7);
  EXPECT_EQ(s.decay_steps, 7);
  EXPECT_EQ(s.learning_rate, 0.5);
  EXPECT_EQ(s.schedule, ScheduleKind::kCosine);
  EXPECT_EQ(s.format, DataFormat::kDocuments);
}

TEST(TrainSpecTest, OverridesHaveErrors) {
  EXPECT_EQ(OverrideError({{"max_step", "6"}}),
            "train.max_step: Train has no field \"max_step\"; did you mean \"max_steps\"?");
  EXPECT_EQ(OverrideError({{"max_steps", "many"}}),
            "train.max_steps: \"many\" is not a whole number");
  EXPECT_EQ(OverrideError({{"schedule", "step"}}),
            "train.schedule: \"step\" is not one of CONSTANT, LINEAR, COSINE, WSD, INVERSE_SQRT");
  EXPECT_EQ(OverrideError({{"seed", "-1"}}), "train.seed: \"-1\" is not a whole number >= 0");
  EXPECT_EQ(OverrideError({{"max_steps", "-6"}}), "t.pbtxt: max_steps must be at least 1");
}

TEST(TrainSpecTest, MaskedTokensHaveBertsDefaults) {
  EXPECT_FALSE(ParseTrainSpec("", "t.pbtxt", {})->masked_tokens.has_value());
  const TrainSpec plain = ParseTrainSpec("masked_tokens {}", "t.pbtxt", {}).value();
  ASSERT_TRUE(plain.masked_tokens.has_value());
  EXPECT_EQ(plain.masked_tokens->share, 0.15);
  EXPECT_EQ(plain.masked_tokens->masked, 0.8);
  EXPECT_EQ(plain.masked_tokens->random, 0.1);
  EXPECT_FALSE(plain.masked_tokens->mask_token.has_value());
  const TrainSpec said =
      ParseTrainSpec(
          "masked_tokens { share: 0.5 mask_token: 0 masked: 1 random: 0 special_token: 3 "
          "special_token: 4 }",
          "t.pbtxt", {})
          .value();
  for (const TrainSpec& s : {said, ParseTrainSpec(said.ToText(), "run/train.pbtxt", {}).value()}) {
    EXPECT_EQ(s.masked_tokens->share, 0.5);
    EXPECT_EQ(s.masked_tokens->mask_token, 0);
    EXPECT_EQ(s.masked_tokens->masked, 1);
    EXPECT_EQ(s.masked_tokens->random, 0);
    EXPECT_THAT(s.masked_tokens->special_tokens, testing::ElementsAre(3, 4));
  }
  EXPECT_EQ(ParseTrainSpec(plain.ToText(), "run/train.pbtxt", {})->ToText(), plain.ToText());
}

}  // namespace
}  // namespace plumb
