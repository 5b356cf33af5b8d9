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

// Options that were looked at.
struct EvaluatorRequest {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 1, seq = 0;
  bool logits = false;
};

absl::StatusOr<EvaluatorRequest> CheckOptions(const ModelState& model,
                                              const plumb_evaluator_options* given) {
  PLUMB_ASSIGN_OR_RETURN(const plumb_evaluator_options options, Complete(given));
  EvaluatorRequest request;
  PLUMB_ASSIGN_OR_RETURN(request.format, FormatOf(options.weights));
  const int64_t context_length = model.context->model.dims.context_length;
  request.rows = options.rows == 0 ? 1 : options.rows;
  request.seq = options.seq == 0 ? context_length : options.seq;
  request.logits = options.logits != 0;
  constexpr int64_t kMostRows = 1 << 20;
  if (request.rows < 1 || request.rows > kMostRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: rows must lie in 1..", kMostRows, ", is ", request.rows));
  }
  if (request.seq < 1 || request.seq > context_length) {
    return absl::InvalidArgumentError(absl::StrCat("options: seq must lie in 1..context_length (",
                                                   context_length, "), is ", request.seq));
  }
  BuildOptions program;
  program.program = Program::kEval;
  program.batch = request.rows;
  program.seq = request.seq;
  PLUMB_RETURN_IF_ERROR(CheckSizes(*model.context, program));
  return request;
}

absl::StatusOr<std::unique_ptr<plumb_evaluator>> CreateEvaluator(
    const std::shared_ptr<ModelState>& model, const plumb_evaluator_options* given) {
  PLUMB_ASSIGN_OR_RETURN(const EvaluatorRequest request, CheckOptions(*model, given));
  PLUMB_RETURN_IF_ERROR(model->RequireWeights());
  const double ids = static_cast<double>(request.rows) * static_cast<double>(request.seq);
  const auto vocabulary = static_cast<double>(model->vocab_size());
  PLUMB_RETURN_IF_ERROR(
      CheckRoom("the evaluator", ids * 4 * (3 + (request.logits ? vocabulary : 0))));
  auto made = std::make_unique<plumb_evaluator>();
  made->model = model;
  made->format = request.format;
  made->wants_logits = request.logits;
  made->evaluator =
      std::make_unique<Evaluator>(model->context.get(), model->Pack(request.format), request.rows,
                                  request.seq, made->wants_logits, model->threads());
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

plumb_status plumb_evaluator_plan(const plumb_model* model, const plumb_evaluator_options* options,
                                  int64_t* bytes, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (bytes == nullptr) return NullArgument("bytes");
    const plumb::capi::ModelState& state = *model->state;
    PLUMB_ASSIGN_OR_RETURN(const plumb::capi::EvaluatorRequest request,
                           plumb::capi::CheckOptions(state, options));
    PLUMB_ASSIGN_OR_RETURN(*bytes,
                           plumb::Evaluator::Plan(state.context.get(), request.format, request.rows,
                                                  request.seq, request.logits));
    return absl::OkStatus();
  });
}

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
