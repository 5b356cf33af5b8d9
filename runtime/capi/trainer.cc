#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/given_batches.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/probe_observer.h"
#include "runtime/capi/trainer_file.h"
#include "runtime/session/train_session.h"

struct plumb_trainer {
  std::shared_ptr<plumb::capi::ModelState> model;
  plumb::TrainSpec spec;
  int64_t seq = 0;
  plumb::capi::GivenBatches* batches = nullptr;  // the session's
  std::unique_ptr<plumb::TrainSession> session;
  std::atomic<bool> cancelled{false};
  bool has_gradients = false;
  bool busy = false;  // in a call

  ~plumb_trainer() {
    if (session != nullptr) --model->trainers;
  }
  size_t micro_batch() const { return static_cast<size_t>(spec.batch_size * seq); }
  size_t step_tokens() const {
    return micro_batch() * static_cast<size_t>(spec.gradient_accumulation_steps);
  }
};

static const plumb::capi::RuntimeState& RuntimeOf(const plumb_trainer& trainer) {
  return *trainer.model->runtime;
}

namespace plumb::capi {
namespace {

// Whether programs of `form` cannot train the weights where they lie.
bool MustLayOut(WeightFormat form, const ParameterStore& parameters) {
  // Which form a store has, its matrices tell; a model without any is alike in both.
  bool is_split = false;
  for (size_t i = 0; i < parameters.layout().entries.size(); ++i) {
    is_split |= parameters.is_split(i);
  }
  return is_split != (form == WeightFormat::kBf16) || parameters.is_mapped();
}

// The weights as programs of `form` read them in place.
std::unique_ptr<ParameterStore> LayOut(WeightFormat form, const ModelState& model) {
  const std::vector<ParameterSpec>& specs = model.context->parameters;
  auto other = std::make_unique<ParameterStore>(specs, model.context->states, form);
  constexpr int64_t kPiece = 1 << 16;
  std::vector<float> piece(kPiece);
  const std::vector<ParameterLayout::Entry>& entries = other->layout().entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int64_t n = entries[i].end - entries[i].begin;
    for (int64_t at = 0; at < n; at += kPiece) {
      const int64_t count = std::min(kPiece, n - at);
      model.parameters->Read(i, at, count, piece.data());
      other->Write(i, at, count, piece.data());
    }
  }
  std::copy_n(model.parameters->state_data(), other->states().size, other->state_data());
  return other;
}

absl::StatusOr<std::unique_ptr<plumb_trainer>> CreateTrainer(
    const std::shared_ptr<ModelState>& model, const plumb_trainer_options* given) {
  const absl::StatusOr<plumb_trainer_options> options = Complete(given);
  if (!options.ok()) return options.status();
  PLUMB_RETURN_IF_ERROR(model->RequireWeights());
  if (model->trainers > 0)
    return absl::FailedPreconditionError("the model has a trainer already: free it first");
  auto trainer = std::make_unique<plumb_trainer>();
  const absl::string_view recipe = options->recipe == nullptr
                                       ? absl::string_view()
                                       : absl::string_view(options->recipe, options->recipe_size);
  PLUMB_ASSIGN_OR_RETURN(trainer->spec, ParseTrainSpec(recipe, "recipe", {}));
  const int64_t context_length = model->context->model.dims.context_length;
  trainer->seq = options->seq == 0 ? context_length : options->seq;
  if (trainer->seq < 1 || trainer->seq > context_length) {
    return absl::InvalidArgumentError(absl::StrCat("options: seq must lie in 1..context_length (",
                                                   context_length, "), is ", options->seq));
  }
  const TrainSpec& spec = trainer->spec;
  constexpr int64_t kMostIds = int64_t{1} << 28;  // of a step, which plumb_trainer_run holds
  if (spec.gradient_accumulation_steps > kMostIds / (spec.batch_size * trainer->seq)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recipe: ", spec.gradient_accumulation_steps, " micro-batches x ", spec.batch_size,
        " rows x ", trainer->seq, " are more than ", kMostIds, " ids a step"));
  }
  const WeightFormat form = WeightFormatOf(spec);
  const bool lays_out = MustLayOut(form, *model->parameters);
  if (lays_out && model->sessions > 0) {
    return absl::FailedPreconditionError(
        "training in bf16, or of weights that are mapped, lays them out anew: free the model's "
        "sessions first, and create them again afterwards");
  }
  auto batches = std::make_unique<GivenBatches>(spec.batch_size, trainer->seq,
                                                spec.gradient_accumulation_steps);
  trainer->batches = batches.get();
  std::unique_ptr<ParameterStore> laid_out;  // the model's once nothing can fail
  const auto parameters = [&]() -> ParameterStore* {
    if (lays_out) laid_out = LayOut(form, *model);
    return lays_out ? laid_out.get() : model->parameters.get();
  };
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<TrainSession> session,
                         TrainSession::Create(model->context.get(), parameters, std::move(batches),
                                              spec, model->threads()));
  model->runtime->TellOfPass();
  if (lays_out) {
    const std::lock_guard<std::mutex> lock(model->mutex);
    model->packed.clear();
    model->parameters = std::move(laid_out);
  }
  // Nothing fails from here on: the trainer's destructor counts down.
  trainer->model = model;
  trainer->session = std::move(session);
  ++model->trainers;
  return trainer;
}

// Mistakes in what a host gives, which a program would take for memory.
absl::Status CheckStep(const plumb_trainer& trainer, const int32_t* inputs, const int32_t* targets,
                       size_t n) {
  if (n != trainer.step_tokens()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a step has ", trainer.step_tokens(), " ids (", trainer.spec.gradient_accumulation_steps,
        " micro-batches x ", trainer.spec.batch_size, " rows x ", trainer.seq, "), not ", n));
  }
  PLUMB_RETURN_IF_ERROR(Annotate(trainer.model->CheckTokens(inputs, n, 0), "inputs: "));
  PLUMB_RETURN_IF_ERROR(Annotate(trainer.model->CheckTokens(targets, n, -1), "targets: "));
  const size_t micro_batch = trainer.micro_batch();
  for (size_t at = 0; at < n; at += micro_batch) {
    const int32_t* const end = targets + at + micro_batch;
    if (std::find_if(targets + at, end, [](int32_t id) { return id >= 0; }) != end) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("targets: micro-batch ", at / micro_batch, " has none"));
  }
  return absl::OkStatus();
}

absl::Status Step(plumb_trainer* trainer, const int32_t* inputs, const int32_t* targets, size_t n,
                  plumb_step_info* info) {
  PLUMB_RETURN_IF_ERROR(CheckStep(*trainer, inputs, targets, n));
  const auto begin = std::chrono::steady_clock::now();
  trainer->batches->Set(inputs, targets);
  PLUMB_ASSIGN_OR_RETURN(const StepResult result, trainer->session->Step());
  trainer->has_gradients = true;
  ++trainer->model->version;
  if (info == nullptr) return absl::OkStatus();
  plumb_step_info given = {};
  given.step = result.step;
  given.tokens = result.tokens;
  given.loss = result.loss;
  given.gradient_norm = result.grad_norm;
  given.learning_rate = result.learning_rate;
  given.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Give(given, info);
  return absl::OkStatus();
}

absl::Status Run(plumb_trainer* trainer, plumb_batch_fn batch, plumb_step_fn step, void* user) {
  const size_t n = trainer->step_tokens();
  std::vector<int32_t> inputs(n), targets(n);
  while (trainer->session->step() < trainer->spec.max_steps) {
    if (trainer->cancelled.exchange(false)) return absl::CancelledError("plumb_trainer_cancel");
    if (batch(user, trainer->session->step() + 1, inputs.data(), targets.data(), n) != 0) break;
    plumb_step_info info = {};
    info.struct_size = sizeof(info);
    PLUMB_RETURN_IF_ERROR(Step(trainer, inputs.data(), targets.data(), n, &info));
    if (step != nullptr && step(user, &info) != 0) {
      return absl::CancelledError("the step callback wants no more");
    }
  }
  return absl::OkStatus();
}

// What a probe tells, for `tell`, which may end the run.
ProbeObserver ObserverOf(plumb_trainer* trainer, plumb_probe_fn tell, void* user) {
  return [=](const ObservedTensor& seen) {
    const plumb_probe probe = ToProbe(seen, trainer->session->step() + 1);
    if (tell(user, &probe) != 0) trainer->cancelled = true;
  };
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;
using plumb::capi::NullArgument;

plumb_status plumb_trainer_create(plumb_model* model, const plumb_trainer_options* options,
                                  plumb_trainer** trainer, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (trainer == nullptr) return NullArgument("trainer");
    PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<plumb_trainer> made,
                           plumb::capi::CreateTrainer(model->state, options));
    *trainer = made.release();
    return absl::OkStatus();
  });
}

void plumb_trainer_free(plumb_trainer* trainer) { delete trainer; }

size_t plumb_trainer_step_tokens(const plumb_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->step_tokens();
}

int64_t plumb_trainer_steps(const plumb_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->session->step();
}

plumb_status plumb_trainer_step(plumb_trainer* trainer, const int32_t* inputs,
                                const int32_t* targets, size_t n, plumb_step_info* info,
                                plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (inputs == nullptr) return NullArgument("inputs");
    if (targets == nullptr) return NullArgument("targets");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    const plumb::capi::InCall in_call(&trainer->busy);
    return plumb::capi::Step(trainer, inputs, targets, n, info);
  });
}

plumb_status plumb_trainer_run(plumb_trainer* trainer, plumb_batch_fn batch, plumb_step_fn step,
                               void* user, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (batch == nullptr) return NullArgument("batch");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    const plumb::capi::InCall in_call(&trainer->busy);
    return plumb::capi::Run(trainer, batch, step, user);
  });
}

void plumb_trainer_cancel(plumb_trainer* trainer) {
  if (trainer != nullptr) trainer->cancelled = true;
}

plumb_status plumb_trainer_save(const plumb_trainer* trainer, const char* path,
                                plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    return plumb::capi::SaveTrainer(*trainer->session,
                                    trainer->model->context->model.self_contained_text, path);
  });
}

plumb_status plumb_trainer_load(plumb_trainer* trainer, const char* path, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    const ModelState& model = *trainer->model;
    std::string difference;
    PLUMB_RETURN_IF_ERROR(plumb::capi::LoadTrainer(path, model.context->model.self_contained_text,
                                                   trainer->session.get(), &difference));
    trainer->has_gradients = false;
    ++trainer->model->version;
    if (!difference.empty()) {
      model.runtime->Warn(absl::StrCat(path, ": was saved with another model: ", difference));
    }
    return absl::OkStatus();
  });
}

plumb_status plumb_trainer_probe(plumb_trainer* trainer, int64_t every, const char* const* points,
                                 size_t count, plumb_probe_fn probe, void* user,
                                 plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (every != 0 && probe == nullptr) return NullArgument("probe");
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> globs,
                           plumb::capi::ProbeGlobs(points, count));
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    return trainer->session->SetProbe(every, globs, plumb::capi::ObserverOf(trainer, probe, user));
  });
}

plumb_status plumb_trainer_gradient(const plumb_trainer* trainer, size_t i, plumb_tensor* tensor,
                                    plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (tensor == nullptr) return NullArgument("tensor");
    if (!trainer->has_gradients) {
      return absl::FailedPreconditionError("no step was done, so there is no gradient");
    }
    const auto& entries = trainer->model->parameters->layout().entries;
    const int64_t begin = i < entries.size() ? entries[i].begin : 0;
    return plumb::capi::GiveTensor(
        *trainer->model, i, const_cast<float*>(trainer->session->gradients()) + begin, tensor);
  });
}
