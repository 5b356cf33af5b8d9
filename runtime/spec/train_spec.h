// SPDX-License-Identifier: Apache-2.0
// TrainSpec: how a session trains a model (schema plumb.v1.Train), with defaults filled in. A
// value; model/update_plan.h applies its rules to a model.
#ifndef PLUMB_RUNTIME_SPEC_TRAIN_SPEC_H_
#define PLUMB_RUNTIME_SPEC_TRAIN_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/tensor_type.h"
#include "runtime/spec/formula.h"

namespace plumb {

enum class ScheduleKind { kConstant, kLinear, kCosine, kWsd, kInverseSqrt };
enum class CooldownKind { kLinear, kOneMinusSqrt, kCosine };

// Field of a rule that is an expression.
enum class RuleField { kLearningRate, kWeightDecay, kBeta1, kBeta2, kEps, kClip };
inline constexpr RuleField kRuleFields[] = {RuleField::kLearningRate, RuleField::kWeightDecay,
                                            RuleField::kBeta1,        RuleField::kBeta2,
                                            RuleField::kEps,          RuleField::kClip};
inline constexpr size_t kNumRuleFields = 6;

// Returns the name in the schema: "learning_rate".
const char* GetName(RuleField field);
// Returns the name by which the field's expression refers to the recipe's value: "lr"; "" for
// kClip.
const char* GetDefaultName(RuleField field);

enum class OptimizerKind { kAdamW, kMuon };
enum class TensorClass { kAll, kMatrices, kVectors };

// Rule for selected tensors (schema plumb.v1.Rule), with parsed expressions.
struct TrainRule {
  SourceText match;
  TensorClass tensors = TensorClass::kAll;
  std::optional<Expression> fields[kNumRuleFields];  // indexed by RuleField
  std::optional<OptimizerKind> optimizer;
  bool freezes = false;  // if true, no field and no optimizer is set

  const std::optional<Expression>& field(RuleField f) const {
    return fields[static_cast<size_t>(f)];
  }
};

// Selects matrices whose rows (axis in) or columns (axis out) are normalized.
struct NormalizeRule {
  SourceText match;
  bool columns = false;
};

// Options of Muon in the recipe.
struct MuonSpec {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t newton_schulz_steps = 5;
  bool matches_adamw = false;  // updates are scaled as AdamW's; false: by the matrix's aspect ratio
  // For Muon tensors whose rule sets none; absent: the recipe's.
  std::optional<Expression> learning_rate, weight_decay;
};

// BERT's objective: masked language modeling.
struct MaskedTokensSpec {
  double share = 0.15;
  std::optional<int64_t> mask_token;  // absent: the last token of the vocabulary
  double masked = 0.8, random = 0.1;  // fractions of the chosen tokens
  std::vector<int32_t> special_tokens;
};

struct TrainSpec {
  int64_t max_steps = 1000;
  int64_t batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  int64_t units = 0;  // 0: gradient_accumulation_steps
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  bool decay_everything = false;  // false: only matrices, and parameters that set weight_decay
  double grad_clip = 1;           // 0 = never
  ScheduleKind schedule = ScheduleKind::kConstant;
  int64_t warmup_steps = 0;
  bool warmup_multiplies = false;  // false: the schedule begins after the warmup
  double min_learning_rate = 0;
  int64_t decay_steps = 0;     // max_steps if the recipe sets none
  int64_t cooldown_steps = 0;  // for kWsd
  CooldownKind cooldown = CooldownKind::kLinear;
  uint64_t seed = 1;
  bool keep_order = false;
  DType dtype = DType::kF32;  // or kBF16
  bool recompute_blocks = false;
  double label_smoothing = 0;
  double z_loss = 0;
  std::optional<MaskedTokensSpec> masked_tokens;  // absent: the targets are given
  double ema_decay = 0;                           // 0 = no average of the weights
  double router_correction_rate = 0;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  MuonSpec muon;
  std::vector<Statement> lets;   // for the expressions of rules
  std::vector<TrainRule> rules;  // the first that matches a tensor applies
  std::vector<NormalizeRule> normalize;
  // The recipe as text, with the fields that a session does not use. Every field with a nonzero
  // default is written, so that a later change of a default does not affect it.
  std::string text;

  bool UsesMuon() const;  // true if any tensor is updated by Muon

  // Number of passes in a step, and number of sequences in each.
  // The session's caller computes the loss (TrainSession::SetLoss). Not a field of the recipe.
  bool host_loss = false;

  int64_t num_units() const { return units == 0 ? gradient_accumulation_steps : units; }
  int64_t unit_rows() const { return batch_size / units_per_micro_batch(); }
  int64_t units_per_micro_batch() const { return num_units() / gradient_accumulation_steps; }
};

// Parses `text` in protobuf text format, then applies `overrides` ("max_steps", "200") in order.
// `file` names the text in errors. Reports all values out of range at once.
absl::StatusOr<TrainSpec> ParseTrainSpec(
    absl::string_view text, const std::string& file,
    const std::vector<std::pair<std::string, std::string>>& overrides);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TRAIN_SPEC_H_
