// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job tell each other when they train one model: that they train the same, and
// what came of a step. Pure functions over a communicator; collective: every rank calls them.
#ifndef PLUMB_RUNTIME_SESSION_RANK_STEP_H_
#define PLUMB_RUNTIME_SESSION_RANK_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kernels/simd/tensor_stats.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/bucket_plan.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "runtime/session/unit_tree.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// Whether `ranks` ranks can train the model: kInvalidArgument for more ranks than units, and for
// norms that keep statistics from one unit to the next.
absl::Status CheckRanks(const ModelContext& context, const TrainSpec& spec, int ranks);

// kFailedPrecondition, everywhere, when recipe, model, sequences or weights are not the same on all
// ranks.
absl::Status AgreeToTrain(Communicator* ranks, const ModelContext& context, const TrainSpec& spec,
                          int64_t max_seq, const ParameterStore& weights);

// Sends `targets` of this rank's units, the numbers of their targets, to all ranks, and sets those
// of all other units, so that every rank knows which part of the step its units are. Where a rank
// has an error: everywhere the error of the first that has one.
absl::Status ShareTargets(Communicator* ranks, const absl::Status& status, const UnitRange& mine,
                          std::vector<int64_t>* targets);

// What a rank knows of a step that was computed.
struct StepShare {
  absl::Status status;
  std::vector<double> losses;   // of its units
  bool probes = false;          // some rank wants to know of weights
  std::vector<double> squares;  // of each parameter's gradient, of which those it owns are its own
};
// Makes it that of all ranks: the losses of all units in their order, all squares. Where a rank has
// an error: everywhere the error of the first that has one.
absl::Status ShareStep(Communicator* ranks, const BucketPlan& plan, int64_t units,
                       StepShare* share);

// Of all weights, where each rank has the f32 of its own only. In the order of the layout.
absl::StatusOr<std::vector<TensorStats>> ShareWeightStats(Communicator* ranks,
                                                          const BucketPlan& plan,
                                                          const ParameterStore& weights,
                                                          int threads);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_RANK_STEP_H_
