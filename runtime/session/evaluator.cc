#include "runtime/session/evaluator.h"

#include <cstring>

#include "runtime/base/status.h"

namespace plumb {
namespace {

BuildOptions EvaluatorProgram(int64_t rows, WeightFormat weights, bool logits) {
  BuildOptions options;
  options.program = Program::kEval;
  options.batch = rows;
  options.weights = weights;
  options.output_logits = logits;
  return options;
}

// Of an Evaluator's buffers.
int64_t BytesOfIds(int64_t rows, int64_t seq) {
  return rows * seq * static_cast<int64_t>(sizeof(int32_t));
}
int64_t BytesOfLogits(const ModelContext& context, int64_t rows, int64_t seq) {
  return rows * seq * context.model.dims.vocab_size * SizeOf(DType::kF32);
}

}  // namespace

absl::StatusOr<int64_t> Evaluator::Plan(const ModelContext* context, WeightFormat weights,
                                        int64_t rows, int64_t max_seq, bool logits) {
  ExecutableCache executables(context, EvaluatorProgram(rows, weights, logits),
                              /*gradients=*/false);
  PLUMB_ASSIGN_OR_RETURN(const int64_t workspace, executables.Prepare(max_seq));
  return workspace + 3 * BytesOfIds(rows, max_seq) + kAlignment +
         (logits ? BytesOfLogits(*context, rows, max_seq) : 0);
}

Evaluator::Evaluator(const ModelContext* context, const PackedWeights* weights, int64_t rows,
                     int64_t max_seq, bool logits, int threads)
    : weights_(weights),
      rows_(rows),
      max_seq_(max_seq),
      threads_(threads),
      tokens_(BytesOfIds(rows, max_seq)),
      positions_(tokens_.size()),
      targets_(tokens_.size()),
      loss_(kAlignment),
      logits_(logits ? BytesOfLogits(*context, rows, max_seq) : 0),
      executables_(context, EvaluatorProgram(rows, weights->format(), logits),
                   /*gradients=*/false) {}

absl::StatusOr<int64_t> Evaluator::Prepare() { return executables_.Prepare(max_seq_); }

int64_t Evaluator::bytes() const {
  return tokens_.size() + positions_.size() + targets_.size() + loss_.size() + logits_.size();
}

absl::StatusOr<double> Evaluator::Run(const int32_t* tokens, const int32_t* positions,
                                      const int32_t* targets, int64_t seq) {
  const auto bind = [this](Executable* executable) -> absl::Status {
    PLUMB_RETURN_IF_ERROR(weights_->Bind(executable));
    PLUMB_RETURN_IF_ERROR(executable->Bind("tokens", tokens_.data()));
    PLUMB_RETURN_IF_ERROR(executable->Bind("positions", positions_.data()));
    PLUMB_RETURN_IF_ERROR(executable->Bind("targets", targets_.data()));
    if (logits_.size() > 0) PLUMB_RETURN_IF_ERROR(executable->Bind("logits", logits_.data()));
    return executable->Bind("loss", loss_.data());
  };
  const size_t bytes = static_cast<size_t>(rows_ * seq) * sizeof(int32_t);
  std::memcpy(tokens_.data(), tokens, bytes);
  std::memcpy(positions_.data(), positions, bytes);
  std::memcpy(targets_.data(), targets, bytes);
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable, executables_.Get(seq, bind));
  PLUMB_RETURN_IF_ERROR(executable->Run(threads_));
  return static_cast<double>(*loss_.as<float>());
}

}  // namespace plumb
