#include "runtime/tools/split_loss.h"

#include <algorithm>

#include "runtime/base/status.h"
#include "runtime/tools/handles.h"

namespace plumb {

plumb_evaluator_options ToEvaluatorOptions(const EvalBatches& batches) {
  auto options = Sized<plumb_evaluator_options>();
  options.rows = batches.rows();
  options.seq = batches.max_seq();
  return options;
}

absl::StatusOr<SplitLoss> MeasureLoss(const EvalBatches& batches, int64_t max_batches,
                                      plumb_evaluator* evaluator, Batch* batch) {
  const int64_t count = max_batches > 0 ? std::min(max_batches, batches.size()) : batches.size();
  SplitLoss sum;
  for (int64_t i = 0; i < count; ++i) {
    batches.Fill(i, batch);
    double mean = 0;
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_run, evaluator, batch->tokens.data(),
                                    batch->targets.data(), batch->tokens.size(), &mean));
    sum.loss += mean * static_cast<double>(batch->valid_targets);
    sum.targets += batch->valid_targets;
  }
  sum.loss /= static_cast<double>(std::max<int64_t>(1, sum.targets));
  sum.sequences = std::min(batches.num_sequences(), count * batches.rows());
  return sum;
}

}  // namespace plumb
