// SPDX-License-Identifier: Apache-2.0
// Runs steps of a trainer and losses of an evaluator on batches of data. Stateless.
#ifndef PLUMB_RUNTIME_TRAIN_DATA_PASSES_H_
#define PLUMB_RUNTIME_TRAIN_DATA_PASSES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/client/plumb_api.h"
#include "runtime/data/batches.h"

namespace plumb {

// Loss on a split of the data.
struct SplitLoss {
  std::string split;  // "training", "validation"
  double loss = 0;    // mean over all targets, in nats
  int64_t targets = 0;
  int64_t sequences = 0;
};

// Takes one optimizer step on the micro-batches first, first + 1, ... of the data, using `batch`,
// from batches->MakeBatch, as buffer. Allocates only for a sequence length that it has not seen
// before. Errors: those of plumb_trainer_step.
absl::StatusOr<api::StepInfo> StepOnBatches(int64_t first, TrainBatches* batches, Batch* batch,
                                            api::Trainer* trainer);

// Returns the options of an evaluator for these batches; fields other than rows and seq have their
// defaults.
api::EvaluatorOptions ToEvaluatorOptions(const EvalBatches& batches);

// Returns the mean loss over all targets of the batches, or of the first `max_batches` that have
// targets if that is positive. With `masking`, only masked tokens are targets. `batch`, from
// batches.MakeBatch, is a buffer. Does not set `split` in the result.
absl::StatusOr<SplitLoss> MeasureLoss(const EvalBatches& batches, int64_t max_batches,
                                      const std::optional<TokenMasking>& masking,
                                      api::Evaluator* evaluator, Batch* batch);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_DATA_PASSES_H_
