// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/evaluator.h"

#include "runtime/base/status.h"

namespace plumb {
namespace {

// Returns the bytes of an Evaluator's logits.
int64_t BytesOfLogits(const ModelContext& context, int64_t rows, int64_t seq) {
  return rows * seq * context.model.dims.vocab_size * SizeOf(DType::kF32);
}

}  // namespace

BuildOptions Evaluator::ProgramOptions(int64_t rows, WeightFormat weights, bool logits) {
  BuildOptions options;
  options.program = Program::kEval;
  options.batch = rows;
  options.weights = weights;
  options.output_logits = logits;
  options.output_losses = true;
  return options;
}

absl::StatusOr<int64_t> Evaluator::Plan(const ModelContext* context, WeightFormat weights,
                                        int64_t rows, int64_t max_seq, bool logits) {
  ExecutableCache executables(context, ProgramOptions(rows, weights, logits), /*gradients=*/false);
  PLUMB_ASSIGN_OR_RETURN(const int64_t workspace, executables.Prepare(max_seq));
  return workspace + BatchInputs::Bytes(context->model, rows, max_seq) + kAlignment +
         rows * max_seq * SizeOf(DType::kF32) +
         (logits ? BytesOfLogits(*context, rows, max_seq) : 0);
}

Evaluator::Evaluator(const ModelContext* context, const PackedWeights* weights, int64_t rows,
                     int64_t max_seq, bool logits, int threads, const std::atomic<bool>* cancelled)
    : weights_(weights),
      rows_(rows),
      max_seq_(max_seq),
      threads_(threads),
      cancelled_(cancelled),
      inputs_(context->model, rows, max_seq),
      loss_(kAlignment),
      losses_(rows * max_seq * SizeOf(DType::kF32)),
      logits_(logits ? BytesOfLogits(*context, rows, max_seq) : 0),
      executables_(context, ProgramOptions(rows, weights->format(), logits), /*gradients=*/false) {}

absl::StatusOr<int64_t> Evaluator::Prepare() { return executables_.Prepare(max_seq_); }

int64_t Evaluator::bytes() const {
  return inputs_.bytes() + loss_.size() + losses_.size() + logits_.size();
}

absl::StatusOr<double> Evaluator::Run(const BatchIds& ids, int64_t seq, Probe* probe) {
  const auto bind = [this](Executable* executable) -> absl::Status {
    PLUMB_RETURN_IF_ERROR(weights_->Bind(executable));
    PLUMB_RETURN_IF_ERROR(inputs_.Bind(executable));
    if (logits_.size() > 0) PLUMB_RETURN_IF_ERROR(executable->Bind("logits", logits_.data()));
    PLUMB_RETURN_IF_ERROR(executable->Bind("losses", losses_.data()));
    executable->SetCancelFlag(cancelled_);
    return executable->Bind("loss", loss_.data());
  };
  inputs_.Set(ids, seq);
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable, executables_.Get(seq, bind));
  PLUMB_RETURN_IF_ERROR(probe == nullptr ? executable->Run(threads_)
                                         : probe->Run(*executable, threads_));
  return static_cast<double>(*loss_.as<float>());
}

}  // namespace plumb
