// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/gradient_pass.h"

#include <algorithm>

#include "runtime/base/status.h"

namespace plumb {
namespace {

BuildOptions TrainingProgram(int64_t rows, WeightFormat weights, bool logits) {
  BuildOptions options;
  options.program = Program::kTrain;
  options.batch = rows;
  options.weights = weights;
  options.output_logits = logits;
  options.output_losses = true;
  options.drop = false;
  return options;
}

}  // namespace

absl::StatusOr<int64_t> GradientPass::Plan(const ModelContext* context, WeightFormat weights,
                                           int64_t rows, int64_t max_seq, bool logits) {
  ExecutableCache executables(context, TrainingProgram(rows, weights, logits), /*gradients=*/true);
  PLUMB_ASSIGN_OR_RETURN(const int64_t workspace, executables.Prepare(max_seq));
  const int64_t floats = ParameterLayout(context->parameters).size +
                         StateLayout(context->states).size + rows * max_seq +
                         (logits ? rows * max_seq * context->model.dims.vocab_size : 0);
  return workspace + BatchInputs::Bytes(context->model, rows, max_seq) + 2 * kAlignment +
         floats * SizeOf(DType::kF32);
}

GradientPass::GradientPass(const ModelContext* context, const ParameterStore* parameters,
                           const PackedWeights* weights, int64_t rows, int64_t max_seq, bool logits,
                           int threads, const std::atomic<bool>* cancelled)
    : parameters_(parameters),
      weights_(weights),
      threads_(threads),
      cancelled_(cancelled),
      inputs_(context->model, rows, max_seq),
      loss_(kAlignment),
      losses_(rows * max_seq * SizeOf(DType::kF32)),
      logits_(logits ? rows * max_seq * context->model.dims.vocab_size * SizeOf(DType::kF32) : 0),
      gradients_(parameters->layout().size * SizeOf(DType::kF32)),
      states_(parameters->states().size * SizeOf(DType::kF32)),
      random_(kAlignment),
      executables_(context, TrainingProgram(rows, weights->format(), logits), /*gradients=*/true) {}

absl::Status GradientPass::Bind(Executable* executable) {
  PLUMB_RETURN_IF_ERROR(weights_->BindWeights(executable));
  PLUMB_RETURN_IF_ERROR(parameters_->states().Bind(states_.as<float>(), executable));
  PLUMB_RETURN_IF_ERROR(parameters_->layout().Bind("grad.", gradients_.as<float>(), executable));
  PLUMB_RETURN_IF_ERROR(inputs_.Bind(executable));
  PLUMB_RETURN_IF_ERROR(BindRandom(random_, executable));
  if (logits_.size() > 0) PLUMB_RETURN_IF_ERROR(executable->Bind("logits", logits_.data()));
  PLUMB_RETURN_IF_ERROR(executable->Bind("losses", losses_.data()));
  executable->SetCancelFlag(cancelled_);
  return executable->Bind("loss", loss_.data());
}

absl::StatusOr<double> GradientPass::Run(const BatchIds& ids, int64_t seq, Probe* probe) {
  inputs_.Set(ids, seq);
  std::copy_n(parameters_->state_data(), parameters_->states().size, states_.as<float>());
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable,
                         executables_.Get(seq, [this](Executable* made) { return Bind(made); }));
  PLUMB_RETURN_IF_ERROR(probe == nullptr ? executable->Run(threads_)
                                         : probe->Run(*executable, threads_));
  return static_cast<double>(*loss_.as<float>());
}

}  // namespace plumb
