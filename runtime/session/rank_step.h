// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks that train one model: the agreement that they train the same, and the
// results of a step. Pure functions over a communicator, all collective except CheckRanks.
#ifndef PLUMB_RUNTIME_SESSION_RANK_STEP_H_
#define PLUMB_RUNTIME_SESSION_RANK_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/bucket_plan.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "runtime/session/unit_tree.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// Fails with kInvalidArgument if `ranks` ranks cannot train the model: there are more ranks than
// units, or a norm keeps statistics from one unit to the next.
absl::Status CheckRanks(const ModelContext& context, const TrainSpec& spec, int ranks);

// Fails on all ranks with kFailedPrecondition if recipe, model, sequence length or weights differ
// between ranks.
absl::Status AgreeToTrain(Communicator* ranks, const ModelContext& context, const TrainSpec& spec,
                          int64_t max_seq, const ParameterStore& weights);

// Exchanges the numbers of targets of the units: sends those of `mine`, and sets those of all other
// units, so that every rank knows each unit's share of the step. Errors: if `status` of some rank
// is an error, that of the first such rank, on all ranks.
absl::Status ShareTargets(Communicator* ranks, const absl::Status& status, const UnitRange& mine,
                          std::vector<int64_t>* targets);

// Results of a rank's part of a step.
struct StepShare {
  absl::Status status;
  std::vector<double> losses;   // losses of its units
  std::vector<double> squares;  // indexed by parameter: of its gradient; valid for those it owns
};
// Combines the results of all ranks: losses of all units in their order, and all squares. Errors:
// if some rank has an error, that of the first such rank, on all ranks.
absl::Status ShareStep(Communicator* ranks, const BucketPlan& plan, int64_t units,
                       StepShare* share);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_RANK_STEP_H_
