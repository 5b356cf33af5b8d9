// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/trainer_handle.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/host_communicator.h"
#include "runtime/session/train_memory.h"

namespace plumb::capi {
namespace {

// Returns true if programs of `form` cannot train the weights in place.
bool NeedsRelayout(WeightFormat form, const ParameterStore& parameters) {
  // The matrices show the form of a store; a store without matrices is the same in both forms.
  bool is_split = false;
  for (size_t i = 0; i < parameters.layout().entries.size(); ++i) {
    is_split |= parameters.is_split(i);
  }
  return is_split != (form == WeightFormat::kBf16) || parameters.is_mapped();
}

// Copies the weights into the layout that programs of `form` read in place.
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

// Returns all tensors that resuming needs besides the weights; the average of the weights, if any,
// has the prefix "ema.".
std::vector<TensorToWrite> OptimizerTensors(const TrainSession& session) {
  std::vector<TensorToWrite> tensors = session.optimizer().Tensors();
  if (session.average() == nullptr) return tensors;
  for (TensorToWrite& tensor : session.average()->Tensors("ema.")) {
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Warns if bf16 only saves memory on this machine.
void WarnIfBf16IsWidened(const TrainSpec& spec, const RuntimeState& runtime) {
  const GemmPolicy& gemm = runtime.runtime->impl().gemm;
  if (spec.dtype != DType::kBF16 || gemm.MultipliesBf16()) return;
  runtime.Warn(absl::StrCat(
      "bf16 saves memory here and no arithmetic: it is widened to f32 for every product (",
      gemm.Bf16Reason(), ")"));
}

// Options after validation.
struct TrainerRequest {
  TrainSpec spec;
  int64_t seq = 0, reserve = 0;
  bool draws_weights = false;
  std::unique_ptr<Communicator> communicator;  // null: this process alone
  int ranks = 1;
  plumb_loss_fn loss = nullptr;  // null: plumb's
  void* loss_user = nullptr;
};

absl::StatusOr<TrainerRequest> CheckOptions(const ModelState& model,
                                            const plumb_trainer_options* given) {
  PLUMB_ASSIGN_OR_RETURN(const plumb_trainer_options options, Complete(given));
  TrainerRequest request;
  PLUMB_ASSIGN_OR_RETURN(request.spec, ParseTrainSpec(GetText(options.recipe), "recipe", {}));
  const int64_t context_length = model.context->model.dims.context_length;
  request.seq = options.seq == 0 ? context_length : options.seq;
  if (request.seq < 1 || request.seq > context_length) {
    return absl::InvalidArgumentError(absl::StrCat("options: seq must be in 1..context_length (",
                                                   context_length, "), is ", options.seq));
  }
  request.draws_weights = options.draw_weights != 0;
  request.reserve = options.reserve;
  if (request.reserve < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: reserve must be zero or positive, is ", request.reserve));
  }
  if (options.ranks < 0 || options.ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: ranks must be in 0..", kMaxRanks, ", is ", options.ranks));
  }
  if (options.communicator != nullptr) {
    PLUMB_ASSIGN_OR_RETURN(request.communicator, FromHost(*options.communicator));
    request.ranks = request.communicator->size();
  }
  if (options.ranks > 0) request.ranks = options.ranks;
  TrainSpec& spec = request.spec;
  if (options.loss != nullptr) {
    for (const auto& [field, value] :
         {std::pair("label_smoothing", spec.label_smoothing), std::pair("z_loss", spec.z_loss)}) {
      if (value == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "recipe: ", field, " changes plumb's loss, but options.loss computes it; drop one"));
    }
    spec.host_loss = true;
    request.loss = options.loss;
    request.loss_user = options.loss_user;
  }
  if (spec.units == 0) {
    spec.units = ChooseUnits(spec.batch_size, spec.gradient_accumulation_steps, request.ranks);
  }
  return request;
}

plumb_trainer_memory ToPublic(const TrainMemory& memory) {
  plumb_trainer_memory given = {};
  given.weights = memory.weights;
  given.gradients = memory.gradients;
  given.moments = memory.moments + memory.average;
  given.norm_states = memory.norm_states;
  given.inputs = memory.inputs;
  given.workspace = memory.workspace;
  given.exchange = memory.exchange;
  given.total = memory.total();
  return given;
}

UnitLossFunction ToUnitLoss(plumb_loss_fn loss, void* user, int64_t vocab_size,
                            plumb_trainer* trainer) {
  return [=](const UnitLoss& unit) -> absl::StatusOr<double> {
    plumb_loss told = PLUMB_LOSS_INIT;
    told.step = unit.step;
    told.micro_batch = unit.micro_batch;
    told.first_row = unit.first_row;
    told.rows = unit.rows;
    told.seq = unit.seq;
    told.vocab_size = vocab_size;
    told.inputs = unit.tokens;
    told.targets = unit.targets;
    told.logits = unit.logits;
    told.gradient = unit.gradient;
    const InCall in_pass(&trainer->in_pass);
    if (loss(user, &told) != 0) return absl::CancelledError("the loss callback asked to stop");
    return told.loss;
  };
}

absl::StatusOr<std::unique_ptr<plumb_trainer>> CreateTrainer(
    const std::shared_ptr<ModelState>& model, const plumb_trainer_options* given) {
  PLUMB_ASSIGN_OR_RETURN(TrainerRequest request, CheckOptions(*model, given));
  if (!request.draws_weights) PLUMB_RETURN_IF_ERROR(model->RequireWeights());
  if (model->trainers > 0)
    return absl::FailedPreconditionError("the model has a trainer already: free it first");
  auto trainer = std::make_unique<plumb_trainer>();
  trainer->spec = request.spec;
  trainer->seq = request.seq;
  trainer->ranks = std::move(request.communicator);
  const TrainSpec& spec = trainer->spec;
  const WeightFormat form = GetWeightFormat(spec);
  const bool lays_out = model->parameters == nullptr || NeedsRelayout(form, *model->parameters);
  if (lays_out && model->sessions > 0) {
    return absl::FailedPreconditionError(
        "training in bf16, or of weights that are mapped, changes their layout: free the model's "
        "sessions first, and create them again afterwards");
  }
  auto batches = std::make_unique<HostBatchSource>(
      spec.batch_size, trainer->seq, spec.gradient_accumulation_steps, model->vocab_size(),
      HostBatchSource::Kind{model->context->model.bidirectional, !spec.masked_tokens.has_value()});
  trainer->batches = batches.get();
  std::unique_ptr<ParameterStore> laid_out;  // becomes the model's once nothing can fail
  const auto parameters = [&]() -> absl::StatusOr<ParameterStore*> {
    const ModelContext& context = *model->context;
    if (lays_out && !request.draws_weights) laid_out = LayOut(form, *model);
    if (lays_out && request.draws_weights) {
      laid_out = std::make_unique<ParameterStore>(context.parameters, context.states, form);
    }
    ParameterStore* const store = lays_out ? laid_out.get() : model->parameters.get();
    if (request.draws_weights) {
      if (!lays_out) model->has_weights = false;  // until all of them are drawn
      PLUMB_RETURN_IF_ERROR(
          DrawParameters(context.parameters, context.states, spec.seed, model->threads(), *store));
    }
    return store;
  };
  PLUMB_ASSIGN_OR_RETURN(
      std::unique_ptr<TrainSession> session,
      TrainSession::Create(model->context.get(), parameters, std::move(batches), spec,
                           model->threads(), request.reserve, trainer->ranks.get()));
  if (request.loss != nullptr) {
    session->SetLoss(
        ToUnitLoss(request.loss, request.loss_user, model->vocab_size(), trainer.get()));
  }
  model->runtime->LogProgramProblems();
  WarnIfBf16IsWidened(spec, *model->runtime);
  trainer->state[PLUMB_STATE_MODEL] = session->parameters().Tensors();
  trainer->state[PLUMB_STATE_OPTIMIZER] = OptimizerTensors(*session);
  if (lays_out) {
    const std::lock_guard<std::mutex> lock(model->mutex);
    model->packed.clear();
    model->parameters = std::move(laid_out);
  }
  // Nothing fails from here on, as the trainer's destructor decrements `trainers`.
  if (request.draws_weights) {
    model->has_weights = true;
    ++model->version;
  }
  trainer->model = model;
  trainer->session = std::move(session);
  ++model->trainers;
  return trainer;
}

absl::Status CheckWhole(const plumb_trainer& trainer, int64_t n) {
  if (n == trainer.step_tokens()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a step has ", trainer.step_tokens(), " ids (", trainer.spec.gradient_accumulation_steps,
      " micro-batches x ", trainer.spec.batch_size, " rows x ", trainer.seq, "), not ", n));
}

// Does a step on the batches that were set.
absl::Status Step(plumb_trainer* trainer, plumb_step_info* info) {
  if (info != nullptr) PLUMB_RETURN_IF_ERROR(CheckOutput("info", info));
  if (trainer->shares_states) {
    return absl::FailedPreconditionError("plumb_trainer_share_states: there are no steps in it");
  }
  const auto begin = std::chrono::steady_clock::now();
  trainer->probe_stops = false;
  PLUMB_ASSIGN_OR_RETURN(const StepResult result, trainer->session->Step());
  trainer->has_gradients = true;
  ++trainer->model->version;
  plumb_step_info given = {};
  given.step = result.step;
  given.tokens = result.tokens;
  given.loss = result.loss;
  given.gradient_norm = result.grad_norm;
  given.learning_rate = result.learning_rate;
  given.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (info != nullptr) CopyStruct(given, info);
  if (trainer->probe_stops) return absl::CancelledError("the probe callback asked to stop");
  return absl::OkStatus();
}

absl::Status Run(plumb_trainer* trainer, plumb_batch_fn batch, plumb_step_fn step, void* user) {
  const int64_t n = trainer->step_tokens();
  constexpr int64_t kMaxIds = int64_t{1} << 28;  // max number of ids in these buffers
  if (n > kMaxIds) {
    return absl::InvalidArgumentError(
        absl::StrCat("recipe: ", trainer->spec.gradient_accumulation_steps, " micro-batches x ",
                     trainer->spec.batch_size, " rows x ", trainer->seq, " are more than ", kMaxIds,
                     " ids a step"));
  }
  std::vector<int32_t> inputs(static_cast<size_t>(n)), targets(inputs.size());
  while (trainer->session->step() < trainer->spec.max_steps) {
    if (trainer->cancelled.exchange(false)) return absl::CancelledError("plumb_trainer_cancel");
    if (batch(user, trainer->session->step() + 1, inputs.data(), targets.data(), n) != 0) {
      return absl::CancelledError("the batch callback asked to stop");
    }
    plumb_step_info info = {};
    info.struct_size = sizeof(info);
    PLUMB_RETURN_IF_ERROR(trainer->batches->Set(inputs.data(), targets.data()));
    PLUMB_RETURN_IF_ERROR(Step(trainer, &info));
    if (step != nullptr && step(user, &info) != 0) {
      return absl::CancelledError("the step callback asked to stop");
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;
using plumb::capi::Guard;
using plumb::capi::ModelState;
using plumb::capi::NullArgument;

plumb_status plumb_recipe_text(const char* recipe, const char* name, const char* const* settings,
                               int64_t count, char** text, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    // CheckArray refuses counts whose double would overflow.
    constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max() / 2;
    PLUMB_ASSIGN_OR_RETURN(
        const std::vector<std::string> words,
        plumb::capi::ToList<std::string>("settings", settings,
                                         2 * std::clamp<int64_t>(count, -1, kMaxCount)));
    std::vector<std::pair<std::string, std::string>> pairs;
    for (size_t i = 0; i < words.size(); i += 2) pairs.emplace_back(words[i], words[i + 1]);
    PLUMB_ASSIGN_OR_RETURN(const plumb::TrainSpec spec,
                           plumb::ParseTrainSpec(plumb::capi::GetText(recipe),
                                                 name == nullptr ? "recipe" : name, pairs));
    return plumb::capi::WriteText(spec.text, text);
  });
}

plumb_status plumb_trainer_plan(const plumb_model* model, const plumb_trainer_options* options,
                                plumb_trainer_memory* memory, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    const ModelState& state = *model->state;
    PLUMB_ASSIGN_OR_RETURN(const plumb::capi::TrainerRequest request,
                           plumb::capi::CheckOptions(state, options));
    PLUMB_ASSIGN_OR_RETURN(
        const plumb::TrainMemory planned,
        plumb::PlanTrainMemory(*state.context, request.spec, request.seq, request.ranks));
    return plumb::capi::CopyOut(plumb::capi::ToPublic(planned), "memory", memory);
  });
}

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

int64_t plumb_trainer_step_tokens(const plumb_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->step_tokens();
}

int64_t plumb_trainer_steps(const plumb_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->session->step();
}

plumb_status plumb_trainer_get_memory(const plumb_trainer* trainer, plumb_trainer_memory* memory,
                                      plumb_error** error) {
  return Call(trainer, "trainer", error, [&] {
    return plumb::capi::CopyOut(plumb::capi::ToPublic(trainer->session->planned_memory()), "memory",
                                memory);
  });
}

plumb_status plumb_trainer_step(plumb_trainer* trainer, const int32_t* inputs,
                                const int32_t* targets, int64_t n, plumb_step_info* info,
                                plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (inputs == nullptr) return NullArgument("inputs");
    if (targets == nullptr) return NullArgument("targets");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    const plumb::capi::InCall in_call(&trainer->busy);
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckWhole(*trainer, n));
    PLUMB_RETURN_IF_ERROR(trainer->batches->Set(inputs, targets));
    return plumb::capi::Step(trainer, info);
  });
}

plumb_status plumb_trainer_step_with_callback(plumb_trainer* trainer, plumb_micro_batch_fn fill,
                                              void* user, plumb_step_info* info,
                                              plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (fill == nullptr) return NullArgument("fill");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    const plumb::capi::InCall in_call(&trainer->busy);
    trainer->batches->Set(fill, user);
    return plumb::capi::Step(trainer, info);
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

plumb_status plumb_trainer_gradient(const plumb_trainer* trainer, int64_t i, plumb_tensor* tensor,
                                    plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckBetweenSteps(*trainer));
    if (!trainer->has_gradients) {
      return absl::FailedPreconditionError("no step was done, so there is no gradient");
    }
    const auto* const entry =
        plumb::capi::FindEntry(trainer->session->gradient_layout().entries, i);
    if (entry != nullptr && entry->is_frozen()) {
      return absl::FailedPreconditionError(
          absl::StrCat(entry->name, " is frozen by a rule of the recipe, so it has no gradient"));
    }
    const int64_t begin = entry == nullptr ? 0 : entry->begin;
    return plumb::capi::WriteTensor(
        *trainer->model, i, const_cast<float*>(trainer->session->gradients()) + begin, tensor);
  });
}
