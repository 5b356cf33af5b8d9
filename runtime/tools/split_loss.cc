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

std::optional<TokenMasking> MaskingOf(const Recipe& recipe, const plumb_model_info& model) {
  if (!recipe.fields.has_masked_tokens()) return std::nullopt;
  const v1::MaskedTokens& said = recipe.fields.masked_tokens();  // every default is
  TokenMasking masking;
  masking.seed = recipe.fields.seed();
  masking.special_tokens.assign(said.special_token().begin(), said.special_token().end());
  masking.share = said.share();
  masking.masked = said.masked();
  masking.random = said.random();
  masking.mask_token =
      said.has_mask_token() ? said.mask_token() : static_cast<int32_t>(model.vocab_size - 1);
  masking.vocab_size = model.vocab_size;
  return masking;
}

absl::StatusOr<SplitLoss> MeasureLoss(const EvalBatches& batches, int64_t max_batches,
                                      const std::optional<TokenMasking>& masking,
                                      plumb_evaluator* evaluator, Batch* batch) {
  const int64_t count = max_batches > 0 ? std::min(max_batches, batches.size()) : batches.size();
  SplitLoss sum;
  for (int64_t i = 0; i < count; ++i) {
    PLUMB_RETURN_IF_ERROR(batches.TryFill(i, batch));
    if (masking.has_value()) {
      MaskTokens(*masking, kEvaluationMasks, i * batches.rows(), batch);
      if (batch->valid_targets == 0) continue;  // all tokens are special
    }
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
