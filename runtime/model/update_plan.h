// SPDX-License-Identifier: Apache-2.0
// UpdatePlan: how a recipe updates each parameter of a model: its rules (TrainRule) applied, with
// numbers. Pure; a value.
#ifndef PLUMB_RUNTIME_MODEL_UPDATE_PLAN_H_
#define PLUMB_RUNTIME_MODEL_UPDATE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/model/parameters.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// What of a matrix has length 1 after each step.
enum class UnitLength { kNothing, kRows, kColumns };

// Of one parameter.
struct ParameterUpdate {
  int rule = -1;  // of TrainSpec::rules; -1: none
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  // Its learning rate is lr_scale * lr + lr_offset, with lr the scheduled one.
  double lr_scale = 1, lr_offset = 0;
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0, eps = 0;  // AdamW's
  int clip_group = 0;                    // of UpdatePlan::clips
  UnitLength unit_length = UnitLength::kNothing;

  double LearningRate(double lr) const { return lr_scale * lr + lr_offset; }
  bool operator==(const ParameterUpdate& other) const;
};

struct UpdatePlan {
  std::vector<ParameterUpdate> parameters;  // as the model's
  // The bounds of the norms of groups of gradients, 0: none. The first is the recipe's grad_clip,
  // of all parameters that are in no other group.
  std::vector<double> clips;
};

// The optimizer of a parameter is its rule's, else the recipe's; where that is Muon, AdamW for what
// is no matrix of a layer. Errors, with places: a rule that matches no tensor, or only tensors of
// rules before it; an expression that cannot be evaluated for a tensor that it holds for, or gives
// what no optimizer can use.
absl::StatusOr<UpdatePlan> PlanUpdates(const TrainSpec& spec, const ResolvedModel& model,
                                       absl::Span<const ParameterSpec> parameters);

// For people: tensors that are updated alike together, with their numbers at the peak of the
// schedule and the pattern of the rule that holds for them. One tensor of several layers is one
// line.
std::string ToString(const UpdatePlan& plan, const TrainSpec& spec,
                     absl::Span<const ParameterSpec> parameters);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_UPDATE_PLAN_H_
