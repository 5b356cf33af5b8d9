// The loss of a split of the data, batch by batch. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_SPLIT_LOSS_H_
#define PLUMB_RUNTIME_TOOLS_SPLIT_LOSS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/data/batches.h"
#include "runtime/tools/generate.h"

namespace plumb {

// An evaluator of such batches; the other options are 0.
plumb_evaluator_options ToEvaluatorOptions(const EvalBatches& batches);

// The mean over all targets of the batches, or of the first `max_batches` when that is positive.
// `batch`: of theirs, from MakeBatch. `split` is left out.
absl::StatusOr<SplitLoss> MeasureLoss(const EvalBatches& batches, int64_t max_batches,
                                      plumb_evaluator* evaluator, Batch* batch);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_SPLIT_LOSS_H_
