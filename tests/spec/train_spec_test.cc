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

std::string RecipeError(const std::string& text, const Overrides& overrides = {}) {
  const absl::StatusOr<TrainSpec> spec = ParseTrainSpec(text, "t.pbtxt", overrides);
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

TEST(TrainSpecTest, AZeroThatIsSaidIsNotTheDefault) {
  EXPECT_EQ(
      RecipeError("max_steps: 0\nbatch_size: 0\n  gradient_accumulation_steps: 0\ndecay_steps: 0"),
      "t.pbtxt:1:1: max_steps must be at least 1\n"
      "t.pbtxt:2:1: batch_size must be in 1..1048576\n"
      "t.pbtxt:3:3: gradient_accumulation_steps must be at least 1");
  EXPECT_EQ(RecipeError("decay_steps: 0"), "t.pbtxt:1:1: decay_steps must be at least 1");
  EXPECT_EQ(RecipeError("", {{"max_steps", "0"}}), "t.pbtxt: max_steps must be at least 1");
}

TEST(TrainSpecTest, UnitsDivideAStepsSequences) {
  EXPECT_EQ(RecipeError("batch_size: 4 gradient_accumulation_steps: 2 units: 3"),
            "t.pbtxt:1:46: units must be a multiple of gradient_accumulation_steps, 2");
  EXPECT_EQ(RecipeError("batch_size: 4 gradient_accumulation_steps: 2 units: 6"),
            "t.pbtxt:1:46: units must be such that each has as many of the 4 x 2 sequences of a "
            "step (batch_size x gradient_accumulation_steps)");
  EXPECT_EQ(RecipeError("units: -1"),
            "t.pbtxt:1:1: units must be a multiple of gradient_accumulation_steps, 1");
  const TrainSpec s =
      ParseTrainSpec("batch_size: 6 gradient_accumulation_steps: 2", "t", {}).value();
  EXPECT_EQ(s.num_units(), 2);
  EXPECT_EQ(s.unit_rows(), 6);
}

constexpr char kEverything[] =
    "max_steps: 200 batch_size: 8 gradient_accumulation_steps: 2 learning_rate: 0.01 beta1: 0.85\n"
    "units: 16 shard: GRADIENTS wire: BF16\n"
    "beta2: 0.99 eps: 1e-5 weight_decay: 0.123456789 weight_decay_on: EVERYTHING grad_clip: 0.5\n"
    "schedule: COSINE warmup_steps: 10 min_learning_rate: 0.001 decay_steps: 150\n"
    "seed: 18446744073709551615 eval_interval: 20 eval_batches: 4 checkpoint_interval: 50\n"
    "keep_checkpoints: 3 dtype: BF16 recompute: BLOCK\n"
    "on_divergence: STEP_BACK max_divergences: 4 step_back_learning_rate_scale: 0.5\n"
    "label_smoothing: 0.1 z_loss: 1e-4 ema_decay: 0.999\n"
    "data { format: DOCUMENTS vocabulary: BYTES val_fraction: 0.25 keep_order: true }\n";

TEST(TrainSpecTest, TakesWhatIsSaid) {
  const TrainSpec s = ParseTrainSpec(kEverything, "t.pbtxt", {}).value();
  EXPECT_EQ(s.max_steps, 200);
  EXPECT_EQ(s.batch_size, 8);
  EXPECT_EQ(s.gradient_accumulation_steps, 2);
  EXPECT_EQ(s.num_units(), 16);
  EXPECT_EQ(s.unit_rows(), 1);
  EXPECT_EQ(s.shard, Shard::kGradients);
  EXPECT_EQ(s.wire, DType::kBF16);
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
  EXPECT_EQ(s.format, DataFormat::kDocuments);
  EXPECT_EQ(s.vocabulary, VocabularyKind::kBytes);
  EXPECT_EQ(s.val_fraction, 0.25);
  EXPECT_TRUE(s.keep_order);
  EXPECT_EQ(s.eval_interval, 20);
  EXPECT_EQ(s.eval_batches, 4);
  EXPECT_EQ(s.checkpoint_interval, 50);
  EXPECT_EQ(s.keep_checkpoints, 3);
  EXPECT_EQ(s.on_divergence, OnDivergence::kStepBack);
  EXPECT_EQ(s.max_divergences, 4);
  EXPECT_EQ(s.step_back_learning_rate_scale, 0.5);
  EXPECT_EQ(s.dtype, DType::kBF16);
  EXPECT_TRUE(s.recompute_blocks);
}

TEST(TrainSpecTest, AZeroThatMeansSomethingIsNotADefault) {
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

TEST(TrainSpecTest, ItsTextReadsBackAsTheSame) {
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
  }
}

constexpr char kRules[] =
    "let: 'base = 256' let: 'm = d_model / base'\n"
    "rule { match: '*.norm.weight' learning_rate: '0.1 * lr' weight_decay: '0' }\n"
    "rule { match: '*' tensors: MATRICES beta1: '0.8' beta2: '0.9' eps: 'eps / m' clip: '1.5' }\n"
    "rule { match: '*' tensors: VECTORS clip: '2' }\n"
    "normalize { match: '*.q.weight' axis: OUT } normalize { match: 'head.weight' }\n";

TEST(TrainSpecTest, RulesAreKeptInOrderAndReadBackAsTheSame) {
  const TrainSpec s = ParseTrainSpec(kRules, "t.pbtxt", {}).value();
  ASSERT_EQ(s.rules.size(), 3u);
  EXPECT_EQ(s.rules[0].match.value, "*.norm.weight");
  EXPECT_EQ(s.rules[0].field(RuleField::kWeightDecay)->text.value, "0");
  EXPECT_FALSE(s.rules[0].field(RuleField::kClip).has_value());
  EXPECT_EQ(s.rules[1].tensors, TensorClass::kMatrices);
  EXPECT_EQ(s.rules[2].tensors, TensorClass::kVectors);
  const TrainSpec again = ParseTrainSpec(s.ToText(), "run/train.pbtxt", {}).value();
  EXPECT_EQ(again.ToText(), s.ToText());
  ASSERT_EQ(again.rules.size(), 3u);
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

TEST(TrainSpecTest, ARuleCanBeSetAndALaterLetTakesThePlaceOfAnEarlierOne) {
  const TrainSpec s = ParseTrainSpec(
                          "let: 'a = 1' let: 'b = a' let: 'a = 2' rule { match: '*' "
                          "clip: '1' }",
                          "t.pbtxt", {{"rule[0].clip", "7"}})
                          .value();
  EXPECT_EQ(s.rules[0].field(RuleField::kClip)->text.value, "7");
  ASSERT_EQ(s.lets.size(), 2u);
  EXPECT_EQ(s.lets[0].text.value, "a = 2");
}

TEST(TrainSpecTest, RulesThatCannotBeReadAreMistakesWithTheirPlace) {
  EXPECT_EQ(RecipeError("rule { clip: '1' }"),
            "t.pbtxt:1:1: rule: match is missing; it names parameters, \"*\" for all");
  EXPECT_EQ(RecipeError("rule { match: '*' tensors: ALL }"),
            "t.pbtxt:1:8: rule: says nothing; give it learning_rate, weight_decay, beta1, beta2, "
            "eps, clip or optimizer");
  EXPECT_THAT(RecipeError("rule {\n match: '*'\n clip: '1 +' }"),
              testing::StartsWith("t.pbtxt:3:2: "));
  EXPECT_THAT(RecipeError("rule { match: '*' learning_rte: 'lr' }"),
              testing::HasSubstr("did you mean \"learning_rate\"?"));
  EXPECT_EQ(RecipeError("normalize { axis: IN }"),
            "t.pbtxt:1:1: normalize: match is missing; it names matrices, \"*\" for all");
  EXPECT_THAT(RecipeError("let: 'lr = 1'"),
              testing::HasSubstr("\"lr\" is the recipe's learning_rate; a let needs a name"));
  EXPECT_THAT(RecipeError("let: 'd_model = 1'"), testing::HasSubstr("a scalar of the model"));
  EXPECT_THAT(RecipeError("let: 'fan_in = 1'"), testing::HasSubstr("a scalar of the tensor"));
  EXPECT_THAT(RecipeError("let: 'sqrt = 1'"), testing::HasSubstr("is a function"));
  EXPECT_THAT(RecipeError("let: 'a = 1 if n_layer > 2'"), testing::HasSubstr("no condition"));
}

TEST(TrainSpecTest, ImportedRulesComeAfterItsOwnAndTheirLetsBefore) {
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
  // What a run keeps imports nothing.
  const TrainSpec again = ParseTrainSpec(s.ToText(), "run/train.pbtxt", {}).value();
  EXPECT_EQ(again.ToText(), s.ToText());
  EXPECT_EQ(again.ToText().find("import"), std::string::npos);
  EXPECT_EQ(again.rules.size(), 2u);
}

TEST(TrainSpecTest, ImportsThatAreNotThereAreMistakesWithTheirPlace) {
  EXPECT_EQ(RecipeError("max_steps: 3\nimport: 'mupp'"),
            "t.pbtxt:2:1: import: no rules called \"mupp\" ship; did you mean \"mup\"?; there are "
            "completep, mup, and a file's name ends in .pbtxt");
  EXPECT_THAT(RecipeError("import: 'nowhere.pbtxt'"),
              testing::AllOf(testing::StartsWith("t.pbtxt:1:1: import: "),
                             testing::HasSubstr("nowhere.pbtxt")));
}

TEST(TrainSpecTest, MuonIsReadAndReadsBackAsTheSame) {
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
  EXPECT_THAT(RecipeError("muon { momentum: 0.9 }"),
              testing::StartsWith("t.pbtxt:1:1: muon: no tensor is updated by it; say optimizer"));
  EXPECT_EQ(RecipeError("muon { momentum: 1 }"), "t.pbtxt:1:8: momentum must be in [0, 1)");
  EXPECT_EQ(RecipeError("muon { newton_schulz_steps: 0 }"),
            "t.pbtxt:1:8: newton_schulz_steps must be in 1..100");
}

TEST(TrainSpecTest, EverySchedulesTextReadsBackAsTheSame) {
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

TEST(TrainSpecTest, OverridesSayWhatIsWrong) {
  EXPECT_EQ(RecipeError("", {{"max_step", "6"}}),
            "train.max_step: Train has no field \"max_step\"; did you mean \"max_steps\"?");
  EXPECT_EQ(RecipeError("", {{"max_steps", "many"}}),
            "train.max_steps: \"many\" is not a whole number");
  EXPECT_EQ(RecipeError("", {{"schedule", "step"}}),
            "train.schedule: \"step\" is not one of CONSTANT, LINEAR, COSINE, WSD, INVERSE_SQRT");
  EXPECT_EQ(RecipeError("", {{"seed", "-1"}}), "train.seed: \"-1\" is not a whole number >= 0");
  EXPECT_EQ(RecipeError("", {{"max_steps", "-6"}}), "t.pbtxt: max_steps must be at least 1");
}

TEST(TrainSpecTest, EveryRangeIsChecked) {
  EXPECT_EQ(RecipeError("max_steps: -1"), "t.pbtxt:1:1: max_steps must be at least 1");
  EXPECT_EQ(RecipeError("batch_size: -1"), "t.pbtxt:1:1: batch_size must be in 1..1048576");
  EXPECT_EQ(RecipeError("batch_size: 2000000"), "t.pbtxt:1:1: batch_size must be in 1..1048576");
  EXPECT_EQ(RecipeError("gradient_accumulation_steps: -1"),
            "t.pbtxt:1:1: gradient_accumulation_steps must be at least 1");
  EXPECT_EQ(RecipeError("learning_rate: -0.1"),
            "t.pbtxt:1:1: learning_rate must be zero or positive");
  EXPECT_EQ(RecipeError("learning_rate: inf"),
            "t.pbtxt:1:1: learning_rate must be zero or positive");
  EXPECT_EQ(RecipeError("learning_rate: nan"),
            "t.pbtxt:1:1: learning_rate must be zero or positive");
  EXPECT_EQ(RecipeError("min_learning_rate: 0.1"),
            "t.pbtxt:1:1: min_learning_rate must be between 0 and learning_rate, 0.001");
  EXPECT_EQ(RecipeError("min_learning_rate: -0.1"),
            "t.pbtxt:1:1: min_learning_rate must be between 0 and learning_rate, 0.001");
  EXPECT_EQ(RecipeError("beta1: 1"), "t.pbtxt:1:1: beta1 must be in [0, 1)");
  EXPECT_EQ(RecipeError("beta1: nan"), "t.pbtxt:1:1: beta1 must be in [0, 1)");
  EXPECT_EQ(RecipeError("beta2: -0.5"), "t.pbtxt:1:1: beta2 must be in [0, 1)");
  EXPECT_EQ(RecipeError("eps: 0"), "t.pbtxt:1:1: eps must be positive");
  EXPECT_EQ(RecipeError("weight_decay: -1"), "t.pbtxt:1:1: weight_decay must be zero or positive");
  EXPECT_EQ(RecipeError("grad_clip: inf"), "t.pbtxt:1:1: grad_clip must be zero or positive");
  EXPECT_EQ(RecipeError("warmup_steps: -1"), "t.pbtxt:1:1: warmup_steps must be zero or more");
  EXPECT_EQ(RecipeError("decay_steps: -1"), "t.pbtxt:1:1: decay_steps must be at least 1");
  EXPECT_EQ(RecipeError("eval_interval: -1"), "t.pbtxt:1:1: eval_interval must be zero or more");
  EXPECT_EQ(RecipeError("eval_batches: -1"), "t.pbtxt:1:1: eval_batches must be zero or more");
  EXPECT_EQ(RecipeError("checkpoint_interval: -1"),
            "t.pbtxt:1:1: checkpoint_interval must be zero or more");
  EXPECT_EQ(RecipeError("keep_checkpoints: -1"),
            "t.pbtxt:1:1: keep_checkpoints must be zero or more");
  EXPECT_EQ(RecipeError("max_divergences: -1"),
            "t.pbtxt:1:1: max_divergences must be zero or more");
  for (const char* scale : {"0", "-1", "1.5", "nan"}) {
    EXPECT_EQ(RecipeError(absl::StrCat("step_back_learning_rate_scale: ", scale)),
              "t.pbtxt:1:1: step_back_learning_rate_scale must be in (0, 1]");
  }
  EXPECT_THAT(RecipeError("max_steps: 9\non_divergence: STEP_BACK"),
              testing::StartsWith("t.pbtxt:2:1: on_divergence must be used with "
                                  "checkpoint_interval when it is STEP_BACK"));
  EXPECT_EQ(RecipeError("schedule: WSD"),
            "t.pbtxt: cooldown_steps must be between 1 and decay_steps, 1000, with schedule: WSD: "
            "the steps in which it decays");
  EXPECT_THAT(RecipeError("schedule: WSD max_steps: 10\ncooldown_steps: 11"),
              testing::StartsWith("t.pbtxt:2:1: cooldown_steps must be between 1 and decay_steps, "
                                  "10"));
  EXPECT_EQ(RecipeError("cooldown_steps: 3"),
            "t.pbtxt:1:1: cooldown_steps must be left out unless schedule is WSD");
  EXPECT_EQ(RecipeError("label_smoothing: 1.5"), "t.pbtxt:1:1: label_smoothing must be in [0, 1]");
  EXPECT_EQ(RecipeError("ema_decay: 1"), "t.pbtxt:1:1: ema_decay must be in [0, 1)");
  EXPECT_EQ(RecipeError("z_loss: -1"), "t.pbtxt:1:1: z_loss must be zero or positive");
  EXPECT_EQ(RecipeError("data { val_fraction: 1 }"), "t.pbtxt:1:8: val_fraction must be in [0, 1)");
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
  EXPECT_EQ(RecipeError("masked_tokens { share: 0\nmask_token: -1 masked: 2 random: nan }"),
            "t.pbtxt:1:17: share must be in (0, 1]\n"
            "t.pbtxt:2:1: mask_token must be zero or positive\n"
            "t.pbtxt:2:16: masked must be in [0, 1]\n"
            "t.pbtxt:2:26: random must be in [0, 1]");
  EXPECT_EQ(RecipeError("masked_tokens { masked: 0.9 random: 0.2 }"),
            "t.pbtxt:1:29: random must be at most 1 - masked, 0.1");
}

TEST(TrainSpecTest, AllMistakesOfRangeComeAtOnce) {
  EXPECT_EQ(RecipeError("max_steps: -1\nbeta1: 2\ndata {\n  val_fraction: -1\n}"),
            "t.pbtxt:1:1: max_steps must be at least 1\n"
            "t.pbtxt:2:1: beta1 must be in [0, 1)\n"
            "t.pbtxt:4:3: val_fraction must be in [0, 1)");
}

TEST(TrainSpecTest, FieldsAndValuesMustBeKnown) {
  EXPECT_EQ(
      RecipeError("learnig_rate: 0.1"),
      "t.pbtxt:1:1: unknown field \"learnig_rate\" in Train; did you mean \"learning_rate\"?");
  EXPECT_EQ(
      RecipeError("schedule: COS"),
      "t.pbtxt:1:11: unknown value \"COS\" for schedule; it is one of CONSTANT, LINEAR, COSINE, "
      "WSD, INVERSE_SQRT");
  EXPECT_EQ(RecipeError("data { format: CSV }"),
            "t.pbtxt:1:16: unknown value \"CSV\" for format; it is one of TEXT, DOCUMENTS, TOKENS");
}

}  // namespace
}  // namespace plumb
