// SPDX-License-Identifier: Apache-2.0
#include "tests/app/evaluate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/session/gradient_pass.h"
#include "runtime/session/probe.h"

namespace plumb {

absl::StatusOr<std::unique_ptr<EvalSession>> EvalSession::Create(const ModelContext* context,
                                                                 const PackedWeights* weights,
                                                                 const Dataset* dataset,
                                                                 Split split, int64_t batch_size,
                                                                 int threads, int64_t stride) {
  EvalBatches::Options options;
  options.batch_size = batch_size;
  options.context_length = context->model.dims.context_length;
  options.stride = stride;
  PLUMB_ASSIGN_OR_RETURN(EvalBatches batches, EvalBatches::Create(dataset, split, options));
  return std::unique_ptr<EvalSession>(
      new EvalSession(context, weights, std::move(batches), threads));
}

absl::StatusOr<std::unique_ptr<EvalSession>> EvalSession::Create(const ModelContext* context,
                                                                 const ParameterStore* parameters,
                                                                 const Dataset* dataset,
                                                                 Split split, int64_t batch_size,
                                                                 int threads) {
  auto weights =
      std::make_unique<PackedWeights>(*context, WeightFormat::kF32, *parameters, threads);
  PLUMB_ASSIGN_OR_RETURN(auto session,
                         Create(context, weights.get(), dataset, split, batch_size, threads));
  session->own_weights_ = std::move(weights);
  return session;
}

EvalSession::EvalSession(const ModelContext* context, const PackedWeights* weights,
                         EvalBatches batches, int threads)
    : batches_(std::move(batches)),
      batch_(batches_.MakeBatch()),
      evaluator_(context, weights, batches_.rows(), batches_.max_seq(), /*logits=*/false, threads) {
}

absl::StatusOr<int64_t> EvalSession::Prepare() {
  PLUMB_ASSIGN_OR_RETURN(const int64_t workspace, evaluator_.Prepare());
  return workspace + evaluator_.bytes();
}

absl::StatusOr<EvalResult> EvalSession::Run(int64_t max_batches) {
  if (own_weights_ != nullptr) own_weights_->Refresh();
  const int64_t count = max_batches > 0 ? std::min(max_batches, batches_.size()) : batches_.size();
  EvalResult result;
  for (int64_t i = 0; i < count; ++i) {
    batches_.Fill(i, &batch_);
    PLUMB_ASSIGN_OR_RETURN(
        const double loss,
        evaluator_.Run({batch_.tokens.data(), batch_.positions.data(), batch_.targets.data()},
                       batch_.seq));
    result.loss += loss * static_cast<double>(batch_.valid_targets);
    result.targets += batch_.valid_targets;
  }
  result.loss /= static_cast<double>(std::max<int64_t>(1, result.targets));
  result.sequences = std::min(batches_.num_sequences(), count * batches_.rows());
  return result;
}

absl::StatusOr<BatchOutputs> RunBatch(const ModelContext& context, const ParameterStore& parameters,
                                      const std::vector<std::vector<int32_t>>& tokens,
                                      bool with_gradients, int threads, Probe* probe,
                                      WeightFormat format) {
  const ModelDims& dims = context.model.dims;
  if (tokens.empty()) return absl::InvalidArgumentError("no sequences");
  const size_t length = tokens[0].size();
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (tokens[b].size() != length) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", b, " has ", tokens[b].size(),
                                                     " tokens, the first has ", length,
                                                     "; all must be of one length"));
    }
    for (size_t t = 0; t < length; ++t) {
      if (tokens[b][t] >= 0 && tokens[b][t] < dims.vocab_size) continue;
      return absl::InvalidArgumentError(absl::StrCat("sequence ", b, ", token ", t, ": ",
                                                     tokens[b][t], " is not in 0..",
                                                     dims.vocab_size - 1));
    }
  }
  if (length < 2) return absl::InvalidArgumentError("a sequence needs at least two tokens");
  BatchOutputs out;
  out.batch = static_cast<int64_t>(tokens.size());
  out.seq = static_cast<int64_t>(length);
  if (out.seq > dims.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("sequences of ", out.seq,
                                                   " tokens are longer than the model's "
                                                   "context_length ",
                                                   dims.context_length));
  }
  const int64_t n = out.batch * out.seq;
  std::vector<int32_t> ids, positions, targets;
  for (const std::vector<int32_t>& row : tokens) {
    ids.insert(ids.end(), row.begin(), row.end());
    targets.insert(targets.end(), row.begin() + 1, row.end());
    targets.push_back(-1);
    for (size_t t = 0; t < length; ++t) positions.push_back(static_cast<int32_t>(t));
  }
  const PackedWeights weights(context, format, parameters, threads);
  if (!with_gradients) {
    Evaluator pass(&context, &weights, out.batch, out.seq, /*logits=*/true, threads);
    PLUMB_ASSIGN_OR_RETURN(out.loss,
                           pass.Run({ids.data(), positions.data(), targets.data()}, out.seq));
    out.logits.assign(pass.logits(), pass.logits() + n * dims.vocab_size);
    return out;
  }
  const bool logits = format == WeightFormat::kF32;
  GradientPass pass(&context, &parameters, &weights, out.batch, out.seq, logits, threads);
  PLUMB_ASSIGN_OR_RETURN(out.loss,
                         pass.Run({ids.data(), positions.data(), targets.data()}, out.seq, probe));
  if (logits) out.logits.assign(pass.logits(), pass.logits() + n * dims.vocab_size);
  out.gradients.assign(pass.gradients(), pass.gradients() + parameters.layout().size);
  return out;
}

absl::StatusOr<ProbeResult> ProbeBatch(const ModelContext& context,
                                       const ParameterStore& parameters,
                                       const std::vector<std::vector<int32_t>>& tokens,
                                       absl::Span<const std::string> globs, int threads) {
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<Probe> probe, Probe::Create(context, globs));
  probe->Begin();
  PLUMB_ASSIGN_OR_RETURN(
      const BatchOutputs outputs,
      RunBatch(context, parameters, tokens, /*with_gradients=*/true, threads, probe.get()));
  return probe->End(0, parameters, parameters.layout(), outputs.gradients.data(), threads);
}

}  // namespace plumb
