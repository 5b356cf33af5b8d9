#include "runtime/session/evaluate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/session/probe.h"

namespace plumb {
namespace {

constexpr int64_t kInt = sizeof(int32_t);

}  // namespace

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
    PLUMB_ASSIGN_OR_RETURN(const double loss,
                           evaluator_.Run(batch_.tokens.data(), batch_.positions.data(),
                                          batch_.targets.data(), batch_.seq));
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
  AlignedBuffer ids(n * kInt), positions(n * kInt), targets(n * kInt), loss(kAlignment);
  for (int64_t i = 0; i < n; ++i) {
    const size_t b = static_cast<size_t>(i / out.seq), t = static_cast<size_t>(i % out.seq);
    ids.as<int32_t>()[i] = tokens[b][t];
    positions.as<int32_t>()[i] = static_cast<int32_t>(t);
    targets.as<int32_t>()[i] = t + 1 < length ? tokens[b][t + 1] : -1;
  }
  AlignedBuffer gradients(with_gradients ? parameters.layout().size * SizeOf(DType::kF32) : 0);
  // A training program would write the statistics of these tokens into the states.
  AlignedBuffer states(parameters.states().size * SizeOf(DType::kF32));
  std::copy_n(parameters.state_data(), parameters.states().size, states.as<float>());
  BuildOptions options;
  options.program = with_gradients ? Program::kTrain : Program::kEval;
  options.batch = out.batch;
  options.output_logits = !with_gradients || format == WeightFormat::kF32;
  options.weights = format;
  const AlignedBuffer logits(options.output_logits ? n * dims.vocab_size * SizeOf(DType::kF32) : 0);
  const PackedWeights weights(context, format, parameters, threads);
  ExecutableCache executables(&context, options, with_gradients);
  const auto bind = [&](Executable* executable) -> absl::Status {
    PLUMB_RETURN_IF_ERROR(weights.BindWeights(executable));
    PLUMB_RETURN_IF_ERROR(parameters.states().Bind(states.as<float>(), executable));
    if (with_gradients) {
      PLUMB_RETURN_IF_ERROR(parameters.layout().Bind("grad.", gradients.as<float>(), executable));
    }
    PLUMB_RETURN_IF_ERROR(executable->Bind("tokens", ids.data()));
    PLUMB_RETURN_IF_ERROR(executable->Bind("positions", positions.data()));
    PLUMB_RETURN_IF_ERROR(executable->Bind("targets", targets.data()));
    if (options.output_logits) {
      PLUMB_RETURN_IF_ERROR(executable->Bind("logits", logits.data()));
    }
    return executable->Bind("loss", loss.data());
  };
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable, executables.Get(out.seq, bind));
  PLUMB_RETURN_IF_ERROR(probe == nullptr ? executable->Run(threads)
                                         : probe->Run(*executable, threads));
  out.loss = static_cast<double>(*loss.as<float>());
  if (options.output_logits) {
    out.logits.assign(logits.as<float>(), logits.as<float>() + n * dims.vocab_size);
  }
  if (with_gradients) {
    out.gradients.assign(gradients.as<float>(), gradients.as<float>() + parameters.layout().size);
  }
  return out;
}

}  // namespace plumb
