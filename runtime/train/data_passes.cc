// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/data_passes.h"

#include <algorithm>

#include "runtime/base/status.h"

namespace plumb {

absl::StatusOr<api::StepInfo> StepOnBatches(int64_t first, TrainBatches* batches, Batch* batch,
                                            api::Trainer* trainer) {
  absl::Status filled;  // status of the last micro-batch
  const auto fill = [&](int64_t i, int32_t* inputs, int32_t* targets, int64_t& seq) {
    filled = batches->TryFill(first + i, batch);
    if (!filled.ok()) return api::Next::kStop;
    std::copy(batch->tokens.begin(), batch->tokens.end(), inputs);
    std::copy(batch->targets.begin(), batch->targets.end(), targets);
    seq = batch->seq;
    return api::Next::kGoOn;
  };
  const api::Result<api::StepInfo> stepped = trainer->StepWithCallback(fill);
  PLUMB_RETURN_IF_ERROR(filled);  // takes precedence over the callback's failure
  return ToStatus(stepped);
}

api::EvaluatorOptions ToEvaluatorOptions(const EvalBatches& batches) {
  api::EvaluatorOptions options;
  options.rows = batches.rows();
  options.seq = batches.max_seq();
  return options;
}

absl::StatusOr<SplitLoss> MeasureLoss(const EvalBatches& batches, int64_t max_batches,
                                      const std::optional<TokenMasking>& masking,
                                      api::Evaluator* evaluator, Batch* batch) {
  SplitLoss sum;
  int64_t measured = 0, i = 0;
  for (; i < batches.size() && (max_batches <= 0 || measured < max_batches); ++i) {
    PLUMB_RETURN_IF_ERROR(batches.TryFill(i, batch));
    if (masking.has_value()) MaskTokens(*masking, kEvaluationMasks, i * batches.rows(), batch);
    if (batch->valid_targets == 0) continue;  // prompts, or special tokens
    ++measured;
    PLUMB_ASSIGN_OR_RETURN(const double mean,
                           ToStatus(evaluator->Loss(batch->tokens, batch->targets)));
    sum.loss += mean * static_cast<double>(batch->valid_targets);
    sum.targets += batch->valid_targets;
  }
  sum.loss /= static_cast<double>(std::max<int64_t>(1, sum.targets));
  sum.sequences = std::min(batches.num_sequences(), i * batches.rows());
  return sum;
}

}  // namespace plumb
