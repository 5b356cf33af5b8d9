// SPDX-License-Identifier: Apache-2.0
// UpdatePlan: how a recipe updates each parameter of a model, after its rules (TrainRule) have been
// matched and evaluated. A value; stateless functions.
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

// Slices of a matrix that are normalized to length 1 after each step.
enum class UnitLength { kNothing, kRows, kColumns };

// Update of one parameter.
struct ParameterUpdate {
  int rule = -1;  // index in TrainSpec::rules; -1: no rule
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  // Learning rate is lr_scale * lr + lr_offset, with lr the scheduled learning rate.
  double lr_scale = 1, lr_offset = 0;
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0, eps = 0;  // for AdamW
  int clip_group = 0;                    // index in UpdatePlan::clips
  UnitLength unit_length = UnitLength::kNothing;
  bool is_frozen = false;  // has no gradient and no update; the values above have no meaning

  double LearningRate(double lr) const { return lr_scale * lr + lr_offset; }
  bool operator==(const ParameterUpdate& other) const;
};

struct UpdatePlan {
  std::vector<ParameterUpdate> parameters;  // in the order of the model's parameters
  std::vector<std::string> frozen;          // names of the frozen ones, in the same order
  // Max gradient norms of the groups; 0: unlimited. The first is the recipe's grad_clip, which
  // covers all parameters in no other group.
  std::vector<double> clips;
};

// Plans the update of each parameter. Its optimizer is that of its rule, else the recipe's; if the
// recipe's is Muon, parameters other than matrices of layers use AdamW. Errors, with locations: a
// rule that matches no tensor, or only tensors of earlier rules; an expression that cannot be
// evaluated for a matched tensor, or has a value that the optimizer cannot use; rules that freeze
// all tensors, or one that is normalized.
absl::StatusOr<UpdatePlan> PlanUpdates(const TrainSpec& spec, const ResolvedModel& model,
                                       absl::Span<const ParameterSpec> parameters);

// Returns a description for users. It groups tensors with equal updates, with the values at the
// peak of the schedule and the pattern of their rule. The same tensor in several layers is one
// line.
std::string ToString(const UpdatePlan& plan, const TrainSpec& spec,
                     absl::Span<const ParameterSpec> parameters);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_UPDATE_PLAN_H_
