// SPDX-License-Identifier: Apache-2.0
// The build options of a training session's programs, and its memory, planned without creating the
// session; equal to TrainSession::memory(). Pure functions and values.
#ifndef PLUMB_RUNTIME_SESSION_TRAIN_MEMORY_H_
#define PLUMB_RUNTIME_SESSION_TRAIN_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/memory.h"
#include "runtime/compile/optimize.h"
#include "runtime/model/build.h"
#include "runtime/session/gradient_exchange.h"
#include "runtime/session/optimizer.h"
#include "runtime/session/program.h"
#include "runtime/session/unit_tree.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

WeightFormat WeightFormatOf(const TrainSpec& spec);

// Micro-batches of a step that units `units` are parts of.
UnitRange MicroBatchesOf(const TrainSpec& spec, const UnitRange& units);

// The training program of a unit; `seq` is to be set.
BuildOptions TrainProgram(const TrainSpec& spec);
// Its compiler passes: those of the context and those that the recipe enables.
OptimizeOptions TrainPasses(const ModelContext& context, const TrainSpec& spec);
// Whether the program itself sums the squares of each gradient (outputs "grad_square.<parameter>"),
// while it is in the cache. Of small models a pass over all gradients costs less than the nodes do.
bool SumsSquaresInProgram(const ModelContext& context);

// The parameters whose f32 rank `rank` keeps, where train.shard divides them; else empty: all. In
// f32 programs read all of them, and an average of the weights (ema_decay) is of all.
std::vector<bool> OwnedWeights(const ModelContext& context, const TrainSpec& spec, int rank,
                               int ranks);

// Bytes that a training session allocates. All are allocated from the first step to the last.
struct TrainMemory {
  int64_t weights = 0;      // f32; in bf16 the program reads the high planes of matrices in place,
                            // and with train.shard only a matrix's owner has the low one
  int64_t gradients = 0;    // with their sums over units, where there are several
  int64_t moments = 0;      // AdamW's two, Muon's one
  int64_t exchange = 0;     // gradients that come from other ranks, or go there as bf16
  int64_t average = 0;      // of the weights (ema_decay)
  int64_t norm_states = 0;  // with copies from before the step and before the unit
  int64_t inputs = 0;       // tokens, positions, targets, the loss
  int64_t workspace = 0;    // activations, their gradients, kernels' scratch
  int64_t validation = 0;   // inputs and workspace of an evaluation; 0 without one

  int64_t total() const {
    return weights + gradients + exchange + moments + average + norm_states + inputs + workspace +
           validation;
  }
};

// How a session's gradients are exchanged between ranks.
GradientExchange::Options ExchangeOptions(const TrainSpec& spec);

// Of steps on sequences of `seq` tokens at most, on the one of `ranks` ranks that takes most.
// Compiles the program and allocates none of it. Errors: also as CheckRanks.
absl::StatusOr<TrainMemory> PlanTrainMemory(const ModelContext& context, const TrainSpec& spec,
                                            int64_t seq, int ranks = 1);
// The same of one rank, with the optimizer that the recipe plans and the workspace of a program
// that is compiled, in bytes.
TrainMemory PlanTrainMemory(const ModelContext& context, const TrainSpec& spec,
                            const OptimizerPlan& optimizer, int64_t seq, int64_t workspace,
                            int rank = 0, int ranks = 1);

// kResourceExhausted when `memory` is more than `limit` says is left: what takes it, and what would
// take less.
absl::Status CheckFits(const TrainMemory& memory, const TrainSpec& spec, const MemoryLimit& limit);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_TRAIN_MEMORY_H_
