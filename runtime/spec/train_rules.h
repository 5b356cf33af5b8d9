// SPDX-License-Identifier: Apache-2.0
// TrainRule: how a recipe trains selected tensors (schema plumb.v1.Rule), with parsed expressions.
// Values; model/update_plan.h applies them to a model.
#ifndef PLUMB_RUNTIME_SPEC_TRAIN_RULES_H_
#define PLUMB_RUNTIME_SPEC_TRAIN_RULES_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/diagnostics.h"
#include "runtime/spec/formula.h"

namespace plumb {

// Field of a rule that is an expression.
enum class RuleField { kLearningRate, kWeightDecay, kBeta1, kBeta2, kEps, kClip };
inline constexpr RuleField kRuleFields[] = {RuleField::kLearningRate, RuleField::kWeightDecay,
                                            RuleField::kBeta1,        RuleField::kBeta2,
                                            RuleField::kEps,          RuleField::kClip};
inline constexpr size_t kNumRuleFields = 6;

// Returns the name in the schema: "learning_rate".
const char* NameOf(RuleField field);
// Returns the name by which the field's expression refers to the recipe's value: "lr"; "" for
// kClip.
const char* DefaultNameOf(RuleField field);

enum class OptimizerKind { kAdamW, kMuon };
enum class TensorClass { kAll, kMatrices, kVectors };

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

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TRAIN_RULES_H_
