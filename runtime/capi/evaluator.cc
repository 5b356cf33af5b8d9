#include "runtime/session/evaluator.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

struct plumb_evaluator {
  std::shared_ptr<plumb::capi::ModelState> model;
  plumb::WeightFormat format = plumb::WeightFormat::kF32;
  std::unique_ptr<plumb::Evaluator> evaluator;
  bool wants_logits = false, has_logits = false;
  std::vector<int32_t> positions, no_targets;  // of the last length

  ~plumb_evaluator() {
    if (evaluator != nullptr) --model->sessions;
  }
};

static const plumb::capi::RuntimeState& RuntimeOf(const plumb_evaluator& evaluator) {
  return *evaluator.model->runtime;
}

namespace plumb::capi {
namespace {

absl::StatusOr<std::unique_ptr<plumb_evaluator>> CreateEvaluator(
    const std::shared_ptr<ModelState>& model, const plumb_evaluator_options* given) {
  PLUMB_ASSIGN_OR_RETURN(const plumb_evaluator_options options, Complete(given));
  PLUMB_ASSIGN_OR_RETURN(const WeightFormat format, FormatOf(options.weights));
  const int64_t context_length = model->context->model.dims.context_length;
  const int64_t rows = options.rows == 0 ? 1 : options.rows;
  const int64_t seq = options.seq == 0 ? context_length : options.seq;
  constexpr int64_t kMostRows = 1 << 20;
  if (rows < 1 || rows > kMostRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: rows must lie in 1..", kMostRows, ", is ", rows));
  }
  if (seq < 1 || seq > context_length) {
    return absl::InvalidArgumentError(absl::StrCat("options: seq must lie in 1..context_length (",
                                                   context_length, "), is ", seq));
  }
  BuildOptions program;
  program.program = Program::kEval;
  program.batch = rows;
  program.seq = seq;
  PLUMB_RETURN_IF_ERROR(CheckSizes(*model->context, program));
  PLUMB_RETURN_IF_ERROR(model->RequireWeights());
  const double ids = static_cast<double>(rows) * static_cast<double>(seq);
  const auto vocabulary = static_cast<double>(model->vocab_size());
  PLUMB_RETURN_IF_ERROR(
      CheckRoom("the evaluator", ids * 4 * (3 + (options.logits != 0 ? vocabulary : 0))));
  auto made = std::make_unique<plumb_evaluator>();
  made->model = model;
  made->format = format;
  made->wants_logits = options.logits != 0;
  made->evaluator = std::make_unique<Evaluator>(model->context.get(), model->Pack(format), rows,
                                                seq, made->wants_logits, model->threads());
  ++model->sessions;
  return made;
}

absl::Status RunEvaluator(plumb_evaluator* evaluator, const int32_t* inputs, const int32_t* targets,
                          size_t n, double* loss) {
  Evaluator& own = *evaluator->evaluator;
  const auto rows = static_cast<size_t>(own.rows());
  const auto max_seq = static_cast<size_t>(own.max_seq());
  if (n == 0 || n % rows != 0 || n / rows > max_seq) {
    return absl::InvalidArgumentError(absl::StrCat("a batch has ", rows, " rows of 1..", max_seq,
                                                   " ids, which ", n, " ids are not"));
  }
  PLUMB_RETURN_IF_ERROR(Annotate(evaluator->model->CheckTokens(inputs, n, 0), "inputs: "));
  if (targets != nullptr) {
    PLUMB_RETURN_IF_ERROR(Annotate(evaluator->model->CheckTokens(targets, n, -1), "targets: "));
    if (std::all_of(targets, targets + n, [](int32_t id) { return id < 0; })) {
      return absl::InvalidArgumentError("targets: there is none");
    }
  } else if (loss == nullptr && !evaluator->wants_logits) {
    return absl::FailedPreconditionError(
        "neither a loss nor logits: options.logits of the evaluator says that they are wanted");
  } else if (loss != nullptr) {
    return absl::InvalidArgumentError("targets is NULL, but a loss is wanted");
  }
  if (evaluator->positions.size() != n) {
    std::vector<int32_t> positions(n);
    for (size_t row = 0; row < rows; ++row) {
      const auto begin = positions.begin() + static_cast<int64_t>(row * (n / rows));
      std::iota(begin, begin + static_cast<int64_t>(n / rows), 0);
    }
    evaluator->no_targets.assign(n, -1);
    evaluator->positions = std::move(positions);
  }
  evaluator->has_logits = false;
  evaluator->model->Pack(evaluator->format);  // after a training step
  PLUMB_ASSIGN_OR_RETURN(const double mean,
                         own.Run(inputs, evaluator->positions.data(),
                                 targets != nullptr ? targets : evaluator->no_targets.data(),
                                 static_cast<int64_t>(n / rows)));
  evaluator->model->runtime->TellGemmProblem();
  evaluator->has_logits = evaluator->wants_logits;
  if (loss != nullptr) *loss = mean;
  return absl::OkStatus();
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;
using plumb::capi::NullArgument;

plumb_status plumb_evaluator_create(plumb_model* model, const plumb_evaluator_options* options,
                                    plumb_evaluator** evaluator, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (evaluator == nullptr) return NullArgument("evaluator");
    PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<plumb_evaluator> made,
                           plumb::capi::CreateEvaluator(model->state, options));
    *evaluator = made.release();
    return absl::OkStatus();
  });
}

void plumb_evaluator_free(plumb_evaluator* evaluator) { delete evaluator; }

plumb_status plumb_evaluator_run(plumb_evaluator* evaluator, const int32_t* inputs,
                                 const int32_t* targets, size_t n, double* loss,
                                 plumb_error** error) {
  return Call(evaluator, "evaluator", error, [&]() -> absl::Status {
    if (inputs == nullptr) return NullArgument("inputs");
    return plumb::capi::RunEvaluator(evaluator, inputs, targets, n, loss);
  });
}

const float* plumb_evaluator_logits(const plumb_evaluator* evaluator) {
  if (evaluator == nullptr || !evaluator->has_logits) return nullptr;
  return evaluator->evaluator->logits();
}
