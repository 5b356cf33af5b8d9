// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/evaluator.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/measurements.h"
#include "runtime/session/gradient_pass.h"

struct plumb_evaluator {
  std::shared_ptr<plumb::capi::ModelState> model;
  plumb::WeightFormat format = plumb::WeightFormat::kF32;
  int64_t rows = 0, max_seq = 0;
  // Exactly one of the two is set.
  std::unique_ptr<plumb::Evaluator> evaluator;
  std::unique_ptr<plumb::GradientPass> gradients;
  std::unique_ptr<plumb::Probe> probe;  // null: off
  bool stopped = false;                 // probe callback returned nonzero
  bool busy = false;                    // during a run
  std::atomic<bool> cancelled{false};
  bool wants_logits = false, has_run = false;
  bool has_losses = false;                     // the last run had targets
  std::vector<int32_t> positions, no_targets;  // for the length of the last run
  std::vector<int32_t> types;                  // empty: all are 0

  ~plumb_evaluator() {
    if (evaluator != nullptr || gradients != nullptr) --model->sessions;
  }
};

static const plumb::capi::RuntimeState& GetRuntime(const plumb_evaluator& evaluator) {
  return *evaluator.model->runtime;
}

namespace plumb::capi {
namespace {

// Options after validation.
struct EvaluatorRequest {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 1, seq = 0;
  bool logits = false, gradients = false;
};

absl::StatusOr<EvaluatorRequest> CheckOptions(const ModelState& model,
                                              const plumb_evaluator_options* given) {
  PLUMB_ASSIGN_OR_RETURN(const plumb_evaluator_options options, Complete(given));
  EvaluatorRequest request;
  PLUMB_ASSIGN_OR_RETURN(request.format, GetFormat(options.weights));
  const int64_t context_length = model.context->model.dims.context_length;
  request.rows = options.rows == 0 ? 1 : options.rows;
  request.seq = options.seq == 0 ? context_length : options.seq;
  request.logits = options.logits != 0;
  request.gradients = options.gradients != 0;
  constexpr int64_t kMaxRows = 1 << 20;
  if (request.rows < 1 || request.rows > kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: rows must be in 1..", kMaxRows, ", is ", request.rows));
  }
  if (request.seq < 1 || request.seq > context_length) {
    return absl::InvalidArgumentError(absl::StrCat("options: seq must be in 1..context_length (",
                                                   context_length, "), is ", request.seq));
  }
  if (request.gradients && request.format != WeightFormat::kF32) {
    return absl::InvalidArgumentError("options: gradients need weights PLUMB_WEIGHTS_F32");
  }
  BuildOptions program;
  program.program = request.gradients ? Program::kTrain : Program::kEval;
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
  const double of_gradients =
      request.gradients ? static_cast<double>(model->parameters->layout().size) : 0;
  PLUMB_RETURN_IF_ERROR(CheckMemoryBudget(
      "the evaluator", 4 * (ids * (4 + (request.logits ? vocabulary : 0)) + of_gradients)));
  auto made = std::make_unique<plumb_evaluator>();
  made->model = model;
  made->format = request.format;
  made->rows = request.rows;
  made->max_seq = request.seq;
  made->wants_logits = request.logits;
  const ModelContext* const context = model->context.get();
  const PackedWeights* const weights = model->Pack(request.format);
  if (request.gradients) {
    made->gradients = std::make_unique<GradientPass>(context, model->parameters.get(), weights,
                                                     request.rows, request.seq, request.logits,
                                                     model->threads(), &made->cancelled);
  } else {
    made->evaluator =
        std::make_unique<Evaluator>(context, weights, request.rows, request.seq, request.logits,
                                    model->threads(), &made->cancelled);
  }
  ++model->sessions;
  return made;
}

// Runs one pass, with the probe if it is on.
absl::StatusOr<double> Pass(plumb_evaluator* evaluator, const int32_t* inputs,
                            const int32_t* targets, int64_t seq) {
  const BatchIds ids = {inputs, evaluator->positions.data(), targets,
                        evaluator->types.empty() ? nullptr : evaluator->types.data()};
  Probe* const probe = evaluator->probe.get();
  evaluator->stopped = false;
  if (probe != nullptr) probe->Begin();
  const bool has_gradients = evaluator->gradients != nullptr;
  PLUMB_ASSIGN_OR_RETURN(const double loss, has_gradients
                                                ? evaluator->gradients->Run(ids, seq, probe)
                                                : evaluator->evaluator->Run(ids, seq, probe));
  if (probe != nullptr && has_gradients) {
    const ParameterStore& parameters = *evaluator->model->parameters;
    probe->End(0, parameters, parameters.layout(), evaluator->gradients->gradients(),
               evaluator->model->threads());
  }
  if (evaluator->stopped) return absl::CancelledError("the probe callback asked to stop");
  return loss;
}

absl::Status RunEvaluator(plumb_evaluator* evaluator, const int32_t* inputs, const int32_t* targets,
                          int64_t count, double* loss) {
  PLUMB_RETURN_IF_ERROR(CheckArray("n", inputs, count, sizeof(*inputs)));
  const auto n = static_cast<size_t>(count);
  const auto rows = static_cast<size_t>(evaluator->rows);
  const auto max_seq = static_cast<size_t>(evaluator->max_seq);
  if (n == 0 || n % rows != 0 || n / rows > max_seq) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch has ", rows, " rows of 1..", max_seq, " ids; n is ", n));
  }
  PLUMB_RETURN_IF_ERROR(evaluator->model->CheckInputs(inputs, n, n / rows));
  if (!evaluator->types.empty() && evaluator->types.size() != n) {
    return absl::InvalidArgumentError(absl::StrCat("plumb_evaluator_set_types gave ",
                                                   evaluator->types.size(), " token types for ", n,
                                                   " inputs"));
  }
  if (targets != nullptr) {
    PLUMB_RETURN_IF_ERROR(Annotate(evaluator->model->CheckTokens(targets, n, -1), "targets: "));
    if (std::all_of(targets, targets + n, [](int32_t id) { return id < 0; })) {
      return absl::InvalidArgumentError("targets: all are -1; a loss needs one that is not");
    }
  } else if (evaluator->gradients != nullptr) {
    return absl::InvalidArgumentError("targets is NULL, but gradients are wanted");
  } else if (loss == nullptr && !evaluator->wants_logits) {
    return absl::FailedPreconditionError(
        "neither a loss nor logits: set options.logits of the evaluator for logits");
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
  evaluator->has_run = false;
  // Packs the weights again if a training step changed them.
  evaluator->model->Pack(evaluator->format);
  const absl::StatusOr<double> mean =
      Pass(evaluator, inputs, targets != nullptr ? targets : evaluator->no_targets.data(),
           static_cast<int64_t>(n / rows));
  if (absl::IsCancelled(mean.status())) evaluator->cancelled = false;
  PLUMB_RETURN_IF_ERROR(mean.status());
  evaluator->model->runtime->LogProgramProblems();
  evaluator->has_run = true;
  evaluator->has_losses = targets != nullptr;
  if (loss != nullptr) *loss = *mean;
  return absl::OkStatus();
}

absl::Status SetTypes(plumb_evaluator* evaluator, absl::Span<const int32_t> types) {
  const auto max = static_cast<size_t>(evaluator->rows * evaluator->max_seq);
  if (types.size() > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("n is ", types.size(), ": a batch has at most ", max, " inputs"));
  }
  const int64_t rows = evaluator->model->context->model.token_types;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] >= 0 && types[i] < rows) continue;
    return absl::InvalidArgumentError(
        rows == 0 ? "types: the model has no token_types"
                  : absl::StrCat("types: ", types[i], " at ", i, " is not in 0..", rows - 1));
  }
  evaluator->types.assign(types.begin(), types.end());
  return absl::OkStatus();
}

// Returns a probe of the evaluator's program.
absl::StatusOr<std::unique_ptr<Probe>> MakeProbe(const plumb_evaluator& evaluator,
                                                 absl::Span<const std::string> globs) {
  const ModelContext& context = *evaluator.model->context;
  if (evaluator.gradients != nullptr) return Probe::Create(context, globs);
  BuildOptions program =
      Evaluator::ProgramOptions(evaluator.rows, evaluator.format, evaluator.wants_logits);
  program.seq = evaluator.max_seq;
  absl::StatusOr<std::unique_ptr<Probe>> probe = Probe::CreateForward(context, program, globs);
  if (probe.ok()) return probe;
  return Annotate(probe.status(), "without options.gradients there are activations only: ");
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
    const auto plan = request.gradients ? plumb::GradientPass::Plan : plumb::Evaluator::Plan;
    PLUMB_ASSIGN_OR_RETURN(*bytes, plan(state.context.get(), request.format, request.rows,
                                        request.seq, request.logits));
    return absl::OkStatus();
  });
}

plumb_status plumb_evaluator_run(plumb_evaluator* evaluator, const int32_t* inputs,
                                 const int32_t* targets, int64_t n, double* loss,
                                 plumb_error** error) {
  return Call(evaluator, "evaluator", error, [&]() -> absl::Status {
    if (inputs == nullptr) return NullArgument("inputs");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(evaluator->busy, "evaluator"));
    const plumb::capi::InCall in_call(&evaluator->busy);
    return plumb::capi::RunEvaluator(evaluator, inputs, targets, n, loss);
  });
}

plumb_status plumb_evaluator_set_types(plumb_evaluator* evaluator, const int32_t* types, int64_t n,
                                       plumb_error** error) {
  return Call(evaluator, "evaluator", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(evaluator->busy, "evaluator"));
    PLUMB_ASSIGN_OR_RETURN(const auto span, plumb::capi::ToSpan("types", types, n));
    return plumb::capi::SetTypes(evaluator, span);
  });
}

const float* plumb_evaluator_logits(const plumb_evaluator* evaluator) {
  if (evaluator == nullptr || !evaluator->has_run || !evaluator->wants_logits) return nullptr;
  return evaluator->gradients != nullptr ? evaluator->gradients->logits()
                                         : evaluator->evaluator->logits();
}

const float* plumb_evaluator_losses(const plumb_evaluator* evaluator) {
  if (evaluator == nullptr || !evaluator->has_run || !evaluator->has_losses) return nullptr;
  return evaluator->gradients != nullptr ? evaluator->gradients->losses()
                                         : evaluator->evaluator->losses();
}

void plumb_evaluator_cancel(plumb_evaluator* evaluator) {
  if (evaluator != nullptr) evaluator->cancelled = true;
}

plumb_status plumb_evaluator_gradient(const plumb_evaluator* evaluator, int64_t i,
                                      plumb_tensor* tensor, plumb_error** error) {
  return Call(evaluator, "evaluator", error, [&]() -> absl::Status {
    if (evaluator->gradients == nullptr || !evaluator->has_run) {
      return absl::FailedPreconditionError(
          evaluator->gradients == nullptr ? "no gradients: set options.gradients of the evaluator"
                                          : "no run was done, so there is no gradient");
    }
    const auto* const entry =
        plumb::capi::FindEntry(evaluator->model->parameters->layout().entries, i);
    const int64_t begin = entry == nullptr ? 0 : entry->begin;
    return plumb::capi::WriteTensor(*evaluator->model, i,
                                    const_cast<float*>(evaluator->gradients->gradients()) + begin,
                                    tensor);
  });
}

plumb_status plumb_evaluator_probe(plumb_evaluator* evaluator, const char* const* points,
                                   int64_t count, plumb_probe_fn probe, void* user,
                                   plumb_error** error) {
  return Call(evaluator, "evaluator", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(evaluator->busy, "evaluator"));
    if (probe == nullptr) {
      evaluator->probe = nullptr;
      return absl::OkStatus();
    }
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> globs,
                           plumb::capi::ToList<std::string>("points", points, count));
    PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<plumb::Probe> made,
                           plumb::capi::MakeProbe(*evaluator, globs));
    made->SetObserver([evaluator, probe, user](const plumb::ObservedTensor& seen) {
      const plumb_probe told = plumb::capi::ToProbe(seen, /*step=*/0);
      if (probe(user, &told) != 0) evaluator->stopped = true;
    });
    evaluator->probe = std::move(made);
    return absl::OkStatus();
  });
}
