// SPDX-License-Identifier: Apache-2.0
// Steps of a trainer, and losses of an evaluator, on batches of data. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_DATA_PASSES_H_
#define PLUMB_RUNTIME_APP_DATA_PASSES_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "runtime/app/generate.h"
#include "runtime/app/plumb_api.h"
#include "runtime/data/batches.h"
#include "runtime/data/masked_tokens.h"

namespace plumb {

// Takes one optimizer step on the micro-batches first, first + 1, .. of the data, of which `batch`
// holds one at a time; it is from batches->MakeBatch. Allocates nothing once its length has been
// seen. Errors: as plumb_trainer_step.
absl::StatusOr<api::StepInfo> StepOnBatches(int64_t first, TrainBatches* batches, Batch* batch,
                                            api::Trainer* trainer);

// Options of an evaluator of such batches; the others are the defaults.
api::EvaluatorOptions ToEvaluatorOptions(const EvalBatches& batches);

// Returns the mean over all targets of the batches, or of the first `max_batches` when that is
// positive. With `masking` the targets are those that it chooses. `batch` is from
// batches.MakeBatch. The result's `split` is left out.
absl::StatusOr<SplitLoss> MeasureLoss(const EvalBatches& batches, int64_t max_batches,
                                      const std::optional<TokenMasking>& masking,
                                      api::Evaluator* evaluator, Batch* batch);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_DATA_PASSES_H_
