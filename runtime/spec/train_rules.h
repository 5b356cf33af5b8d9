// SPDX-License-Identifier: Apache-2.0
// TrainRule: how a recipe trains some tensors otherwise than the rest (schema plumb.v1.Rule), with
// parsed expressions. Values; model/train_rules.h applies them to a model.
#ifndef PLUMB_RUNTIME_SPEC_TRAIN_RULES_H_
#define PLUMB_RUNTIME_SPEC_TRAIN_RULES_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/mistakes.h"
#include "runtime/spec/formula.h"

namespace plumb {

// A field of a rule that is an expression.
enum class RuleField { kLearningRate, kWeightDecay, kBeta1, kBeta2, kEps, kClip };
inline constexpr RuleField kRuleFields[] = {RuleField::kLearningRate, RuleField::kWeightDecay,
                                            RuleField::kBeta1,        RuleField::kBeta2,
                                            RuleField::kEps,          RuleField::kClip};
inline constexpr size_t kNumRuleFields = 6;

// As the schema calls it: "learning_rate".
const char* NameOf(RuleField field);
// What the recipe says without the rule, as the field's expression calls it: "lr"; "" for kClip.
const char* DefaultNameOf(RuleField field);

enum class OptimizerKind { kAdamW, kMuon };
enum class TensorClass { kAll, kMatrices, kVectors };

struct TrainRule {
  Text match;
  TensorClass tensors = TensorClass::kAll;
  std::optional<Expression> fields[kNumRuleFields];  // by RuleField
  std::optional<OptimizerKind> optimizer;

  const std::optional<Expression>& field(RuleField f) const {
    return fields[static_cast<size_t>(f)];
  }
};

// Matrices whose rows (axis in) or columns (axis out) are normalized.
struct NormalizeRule {
  Text match;
  bool columns = false;
};

// What the recipe says of Muon.
struct MuonSpec {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t newton_schulz_steps = 5;
  bool matches_adamw = false;  // the scale of updates; else that of the matrix's aspect ratio
  std::optional<Expression> learning_rate, weight_decay;  // of tensors of Muon without a rule's
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TRAIN_RULES_H_
