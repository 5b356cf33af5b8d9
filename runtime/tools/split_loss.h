// The loss of a split of the data, batch by batch. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_SPLIT_LOSS_H_
#define PLUMB_RUNTIME_TOOLS_SPLIT_LOSS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/data/batches.h"
#include "runtime/data/masked_tokens.h"
#include "runtime/tools/generate.h"
#include "runtime/tools/recipe.h"

namespace plumb {

// The masked tokens of a recipe, of a model's vocabulary; none where it has none.
std::optional<TokenMasking> MaskingOf(const Recipe& recipe, const plumb_model_info& model);

// An evaluator of such batches; the other options are 0.
plumb_evaluator_options ToEvaluatorOptions(const EvalBatches& batches);

// The mean over all targets of the batches, or of the first `max_batches` when that is positive.
// With `masking` the targets are those that it chooses. `batch`: of theirs, from MakeBatch. `split`
// is left out.
absl::StatusOr<SplitLoss> MeasureLoss(const EvalBatches& batches, int64_t max_batches,
                                      const std::optional<TokenMasking>& masking,
                                      plumb_evaluator* evaluator, Batch* batch);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_SPLIT_LOSS_H_
