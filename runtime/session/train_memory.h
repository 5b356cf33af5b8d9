// SPDX-License-Identifier: Apache-2.0
// The build options of a training session's programs, and its memory, planned without creating the
// session; equal to TrainSession::memory(). Pure functions and values.
#ifndef PLUMB_RUNTIME_SESSION_TRAIN_MEMORY_H_
#define PLUMB_RUNTIME_SESSION_TRAIN_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/memory.h"
#include "runtime/compile/optimize.h"
#include "runtime/model/build.h"
#include "runtime/session/optimizer.h"
#include "runtime/session/program.h"
#include "runtime/session/unit_tree.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

WeightFormat GetWeightFormat(const TrainSpec& spec);

// Returns the micro-batches of a step that contain the units `units`.
UnitRange GetMicroBatches(const TrainSpec& spec, const UnitRange& units);

// Returns the build options of a unit's training program, without `seq`.
BuildOptions TrainProgram(const TrainSpec& spec, const std::vector<std::string>& frozen = {});
// Returns its compiler passes: those of the context and those that the recipe enables.
OptimizeOptions TrainPasses(const ModelContext& context, const TrainSpec& spec);
// Returns true if the program sums the squares of each gradient (outputs
// "grad_square.<parameter>"), while it is in the cache. For small models, one pass over all
// gradients is cheaper than these nodes.
bool SumsSquaresInProgram(const ModelContext& context);

// Bytes that a training session allocates. All stay allocated from the first step to the last.
struct TrainMemory {
  int64_t weights = 0;      // f32; in bf16 programs read the high planes of matrices in place
  int64_t gradients = 0;    // with their sums, if there are several units
  int64_t moments = 0;      // two for AdamW, one for Muon
  int64_t exchange = 0;     // gradients received from other ranks
  int64_t average = 0;      // weight average (ema_decay)
  int64_t norm_states = 0;  // with copies from before the step and before the unit
  int64_t inputs = 0;       // tokens, positions, targets, the loss
  int64_t workspace = 0;    // activations, their gradients, kernels' scratch
  int64_t validation = 0;   // inputs and workspace of an evaluation; 0 without one

  int64_t total() const {
    return weights + gradients + exchange + moments + average + norm_states + inputs + workspace +
           validation;
  }
};

// Plans steps on sequences of at most `seq` tokens, for the one of `ranks` ranks that allocates
// most. Compiles the program without allocating its memory. Errors: as CheckRanks, PlanOptimizer
// and BuildProgram.
absl::StatusOr<TrainMemory> PlanTrainMemory(const ModelContext& context, const TrainSpec& spec,
                                            int64_t seq, int ranks = 1);
// Plans the memory of one rank, given the planned optimizer and the compiled program's workspace in
// bytes.
TrainMemory PlanTrainMemory(const ModelContext& context, const TrainSpec& spec,
                            const OptimizerPlan& optimizer, int64_t seq, int64_t workspace,
                            int rank = 0, int ranks = 1);

// Fails with kResourceExhausted if `memory` exceeds `limit`; the message names the largest parts
// and options that need less.
absl::Status CheckFits(const TrainMemory& memory, const TrainSpec& spec, const MemoryLimit& limit);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_TRAIN_MEMORY_H_
