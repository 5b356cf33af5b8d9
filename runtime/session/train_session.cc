#include "runtime/session/train_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"
#include "runtime/kernels/simd/tensor_stats.h"
#include "runtime/session/divergence.h"

namespace plumb {
namespace {

constexpr int64_t kFloatsPerLine = kAlignment / SizeOf(DType::kF32);

std::optional<TokenMasking> MaskingOf(const TrainSpec& spec, int64_t vocab_size) {
  if (!spec.masked_tokens.has_value()) return std::nullopt;
  const MaskedTokensSpec& said = *spec.masked_tokens;
  TokenMasking masking;
  masking.seed = spec.seed;
  masking.share = said.share;
  masking.masked = said.masked;
  masking.random = said.random;
  masking.mask_token = static_cast<int32_t>(said.mask_token.value_or(vocab_size - 1));
  masking.vocab_size = vocab_size;
  masking.special_tokens = said.special_tokens;
  return masking;
}

absl::Status CheckMasking(const TrainSpec& spec, const ResolvedModel& model) {
  if (!spec.masked_tokens.has_value()) return absl::OkStatus();
  if (!model.bidirectional) {
    return absl::InvalidArgumentError(
        "masked_tokens is for models that are bidirectional: one whose tokens see only those "
        "before "
        "them learns to predict the next; leave masked_tokens out of the recipe");
  }
  const int64_t vocabulary = model.dims.vocab_size;
  const int64_t token = spec.masked_tokens->mask_token.value_or(vocabulary - 1);
  if (token < vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("masked_tokens: mask_token ", token,
                                                 " is not in the vocabulary of ", vocabulary));
}

}  // namespace

absl::StatusOr<TrainSession::Plan> TrainSession::MakePlan(const ModelContext* context,
                                                          const BatchSource& batches,
                                                          const TrainSpec& spec, int64_t reserve) {
  PLUMB_RETURN_IF_ERROR(CheckSchedule(ScheduleSpec(spec)));
  PLUMB_RETURN_IF_ERROR(CheckMasking(spec, context->model));
  PLUMB_ASSIGN_OR_RETURN(OptimizerPlan optimizer, PlanOptimizer(spec, *context));
  ExecutableCache executables(context, TrainProgram(spec), /*gradients=*/true,
                              TrainPasses(*context, spec));
  PLUMB_ASSIGN_OR_RETURN(const int64_t workspace, executables.Prepare(batches.max_seq()));
  const TrainMemory memory =
      PlanTrainMemory(*context, spec, optimizer, batches.max_seq(), workspace);
  TrainMemory with_reserve = memory;
  with_reserve.validation = reserve;
  PLUMB_RETURN_IF_ERROR(CheckFits(with_reserve, spec, ProcessMemoryLimit()));
  return Plan{std::move(executables), memory, std::move(optimizer)};
}

absl::StatusOr<std::unique_ptr<TrainSession>> TrainSession::Create(const ModelContext* context,
                                                                   const Dataset* dataset,
                                                                   const TrainSpec& spec,
                                                                   int threads) {
  TrainBatches::Options options;
  options.batch_size = spec.batch_size;
  options.context_length = context->model.dims.context_length;
  options.seed = spec.seed;
  options.keep_order = spec.keep_order;
  options.padding = context->model.bidirectional ? -1 : 0;
  PLUMB_ASSIGN_OR_RETURN(TrainBatches made, TrainBatches::Create(dataset, options));
  auto batches = std::make_unique<TrainBatches>(std::move(made));
  PLUMB_ASSIGN_OR_RETURN(Plan plan, MakePlan(context, *batches, spec, /*reserve=*/0));
  auto parameters =
      std::make_unique<ParameterStore>(context->parameters, context->states, WeightFormatOf(spec));
  PLUMB_RETURN_IF_ERROR(
      DrawParameters(context->parameters, context->states, spec.seed, threads, *parameters));
  auto session = std::unique_ptr<TrainSession>(new TrainSession(
      context, spec, parameters.get(), std::move(batches), std::move(plan), threads));
  session->own_parameters_ = std::move(parameters);
  return session;
}

absl::StatusOr<std::unique_ptr<TrainSession>> TrainSession::Create(
    const ModelContext* context, StoreMaker parameters, std::unique_ptr<BatchSource> batches,
    const TrainSpec& spec, int threads, int64_t reserve) {
  PLUMB_ASSIGN_OR_RETURN(Plan plan, MakePlan(context, *batches, spec, reserve));
  PLUMB_ASSIGN_OR_RETURN(ParameterStore * store, parameters());
  return std::unique_ptr<TrainSession>(
      new TrainSession(context, spec, store, std::move(batches), std::move(plan), threads));
}

TrainSession::TrainSession(const ModelContext* context, const TrainSpec& spec,
                           ParameterStore* parameters, std::unique_ptr<BatchSource> batches,
                           Plan plan, int threads)
    : context_(context),
      spec_(spec),
      schedule_(spec),
      threads_(threads),
      parameters_(*parameters),
      weights_(*context, WeightFormatOf(spec), parameters_, threads),
      range_({0, spec.num_units()}),
      sums_(parameters_.layout(), spec.num_units(), range_, spec.wire),
      squares_(parameters_.layout().entries.size()),
      optimizer_(context->parameters, std::move(plan.optimizer), parameters_),
      states_before_step_(parameters_.states().size * SizeOf(DType::kF32)),
      states_before_unit_(states_before_step_.size()),
      batches_(std::move(batches)),
      batch_(batches_->MakeBatch()),
      masking_(MaskingOf(spec, context->model.dims.vocab_size)),
      inputs_(context->model, spec.unit_rows(), batches_->max_seq()),
      random_(kAlignment),
      loss_(kAlignment),
      grad_squares_(SumsSquaresInProgram(*context)
                        ? static_cast<int64_t>(context->parameters.size()) * kAlignment
                        : 0),
      executables_(std::move(plan.executables)),
      planned_memory_(plan.memory) {
  const ScopedNoDenormals no_denormals;
  optimizer_.Normalize(parameters_, threads_);
  if (spec.ema_decay > 0) {
    average_ = std::make_unique<WeightAverage>(*context, spec.ema_decay, parameters_);
  }
}

absl::Status TrainSession::BindExecutable(Executable* executable) const {
  if (keeps_denormals_) executable->KeepDenormals();
  PLUMB_RETURN_IF_ERROR(weights_.Bind(executable));
  PLUMB_RETURN_IF_ERROR(parameters_.layout().Bind("grad.", sums_.pass(), executable));
  PLUMB_RETURN_IF_ERROR(inputs_.Bind(executable));
  PLUMB_RETURN_IF_ERROR(BindRandom(random_, executable));
  for (size_t i = 0; grad_squares_.size() > 0 && i < context_->parameters.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(
        executable->Bind(absl::StrCat("grad_square.", context_->parameters[i].name),
                         grad_squares_.as<float>() + static_cast<int64_t>(i) * kFloatsPerLine));
  }
  return executable->Bind("loss", loss_.data());
}

TrainMemory TrainSession::memory() const {
  TrainMemory memory;
  memory.weights = parameters_.layout().size * SizeOf(DType::kF32);
  memory.gradients = sums_.bytes() + grad_squares_.size();
  memory.moments = optimizer_.state_bytes();
  if (average_ != nullptr) memory.average = average_->bytes();
  memory.norm_states = parameters_.states().size * SizeOf(DType::kF32) +
                       states_before_step_.size() + states_before_unit_.size();
  memory.inputs = inputs_.bytes() + random_.size() + loss_.size();
  memory.workspace = executables_.workspace_bytes() + optimizer_.scratch_bytes();
  return memory;
}

void TrainSession::CopyStates(const float* from, float* to) const {
  std::copy_n(from, parameters_.states().size, to);
}

absl::Status TrainSession::SetProbe(int64_t every, absl::Span<const std::string> globs,
                                    ProbeObserver observer) {
  if (every < 0) return absl::InvalidArgumentError("the steps between probes cannot be negative");
  probe_.reset();
  probed_ = false;
  probe_every_ = every;
  if (every == 0) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(probe_, Probe::Create(*context_, globs, weights_.format()));
  probe_->SetObserver(std::move(observer));
  return absl::OkStatus();
}

absl::Status TrainSession::Diverged(absl::string_view what, const Executable* executable) {
  // The states that the failed run left would be reported as the first non-finite tensor.
  CopyStates(states_before_unit_.as<float>(), parameters_.state_data());
  PLUMB_ASSIGN_OR_RETURN(const Executable::NonFinite first,
                         executable->RunAndFindNonFinite(threads_));
  if (probe_ != nullptr) {
    CopyStates(states_before_unit_.as<float>(), parameters_.state_data());
    probe_->Begin();
    PLUMB_RETURN_IF_ERROR(probe_->Run(*executable, threads_));
    probe_->End(step_ + 1, parameters_, sums_.pass(), 1, threads_);
    probe_->set_diverged();
    probed_ = true;
  }
  return absl::AbortedError(absl::StrCat(
      "diverged at step ", step_ + 1, ": ", what,
      first.name.empty()
          ? ""
          : absl::StrCat("; the first tensor that is not finite is ", DescribeNonFinite(first))));
}

absl::Status TrainSession::FillInputs(int64_t unit, int64_t* tokens) {
  const StageTimer timer(profile_, "batches");
  const int64_t parts = spec_.units_a_micro_batch();
  const int64_t index = step_ * spec_.gradient_accumulation_steps + unit / parts;
  if (batch_index_ != index) {
    batch_index_ = -1;
    PLUMB_RETURN_IF_ERROR(batches_->TryFill(index, &batch_));
    if (masking_.has_value()) {
      MaskTokens(*masking_, kTrainingMasks, index * spec_.batch_size, &batch_);
    }
    batch_index_ = index;
  }
  const int64_t n = spec_.unit_rows() * batch_.seq, at = unit % parts * n;
  const int32_t* const targets = batch_.targets.data() + at;
  inputs_.Set({batch_.tokens.data() + at, batch_.positions.data() + at, targets}, batch_.seq);
  *tokens = std::count_if(targets, targets + n, [](int32_t target) { return target >= 0; });
  if (*tokens > 0 || parts == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("step ", step_ + 1, ": unit ", unit + 1, " of ", spec_.num_units(),
                   " has no target; fewer train.units have more sequences each"));
}

absl::StatusOr<const Executable*> TrainSession::ProgramOf(int64_t seq) {
  const StageTimer timer(profile_, "compiling");
  const auto bind = [this](Executable* executable) { return BindExecutable(executable); };
  return executables_.Get(seq, bind);
}

absl::Status TrainSession::RunProgram(const Executable& executable) {
  if (probed_) {
    const StageTimer timer(profile_, "probed passes");
    return probe_->Run(executable, threads_);
  }
  return profile_ != nullptr ? profile_->Run(executable, threads_) : executable.Run(threads_);
}

void TrainSession::SetFormulaInputs(int64_t index) {
  SetRandom(spec_.seed, static_cast<uint64_t>(index), &random_);
  const StateLayout::Entry* step = parameters_.states().Find(StateName(kStepBuffer));
  if (step != nullptr) parameters_.state_data()[step->begin] = static_cast<float>(step_ + 1);
}

absl::StatusOr<TrainSession::Unit> TrainSession::RunUnit(int64_t unit) {
  Unit done = {};
  PLUMB_RETURN_IF_ERROR(FillInputs(unit, &done.tokens));
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable, ProgramOf(batch_.seq));
  CopyStates(parameters_.state_data(), states_before_unit_.as<float>());
  SetFormulaInputs(step_ * spec_.num_units() + unit);
  PLUMB_RETURN_IF_ERROR(RunProgram(*executable));
  done.loss = static_cast<double>(*loss_.as<float>());
  if (!std::isfinite(done.loss)) {
    return Diverged(absl::StrCat("the loss is ", done.loss), executable);
  }
  {
    const StageTimer timer(profile_, "gradient norm");
    const ScopedNoDenormals no_denormals(!keeps_denormals_);
    done.grad_square = GradSquare();
  }
  if (!std::isfinite(done.grad_square)) return Diverged("a gradient is not finite", executable);
  return done;
}

double TrainSession::GradSquare() const {
  double sum = 0;
  for (int64_t i = 0; i < grad_squares_.size() / kAlignment; ++i) {
    sum += static_cast<double>(grad_squares_.as<float>()[i * kFloatsPerLine]);
  }
  // The program's sums are f32: infinite above 3e38, and imprecise below 1e-38. Outside of their
  // range, with a margin below, squares are summed again in double.
  constexpr double kLeast = 1e-30;
  if (std::isfinite(sum) && sum > kLeast) return sum;
  return SumOfSquares(sums_.pass(), parameters_.layout().size, threads_);
}

absl::StatusOr<StepResult> TrainSession::Step() {
  PLUMB_RETURN_IF_ERROR(half_done_);
  CopyStates(parameters_.state_data(), states_before_step_.as<float>());
  absl::Cleanup restore = [this] {
    CopyStates(states_before_step_.as<float>(), parameters_.state_data());
  };
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<StepResult> result = TryStep();
  if (profile_ != nullptr && result.ok()) {
    profile_->EndStep(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (result.ok()) std::move(restore).Cancel();
  if (!result.ok() && !absl::IsAborted(result.status())) probed_ = false;  // half of its figures
  return result;
}

absl::Status TrainSession::RunUnits(StepResult* result) {
  const double mean = 1 / static_cast<double>(spec_.num_units());
  batch_index_ = -1;
  sums_.Begin();
  double grad_square = 0;
  for (int64_t unit = range_.begin; unit < range_.end; ++unit) {
    PLUMB_ASSIGN_OR_RETURN(const Unit done, RunUnit(unit));
    result->loss += done.loss * mean;
    result->tokens += done.tokens;
    grad_square = done.grad_square;
    if (!SumsSquaresByParameter()) break;
    const StageTimer timer(profile_, "gradient accumulation");
    const ScopedNoDenormals no_denormals(!keeps_denormals_);
    if (unit + 1 < range_.end) {
      sums_.Add(threads_);
    } else {
      sums_.AddLast({0, parameters_.layout().size}, threads_, squares_.data());
    }
  }
  if (SumsSquaresByParameter()) {
    grad_square = std::accumulate(squares_.begin(), squares_.end(), 0.0);
  }
  if (!std::isfinite(grad_square)) {
    return absl::AbortedError(absl::StrCat("diverged at step ", step_ + 1,
                                           ": the sum of the units' gradients is not finite"));
  }
  result->grad_norm = std::sqrt(grad_square) * mean;
  return absl::OkStatus();
}

absl::StatusOr<StepResult> TrainSession::TryStep() {
  probed_ = probe_ != nullptr && (step_ == 0 || (step_ + 1) % probe_every_ == 0);
  if (probed_) probe_->Begin();
  StepResult result;
  PLUMB_RETURN_IF_ERROR(RunUnits(&result));
  const double mean = 1 / static_cast<double>(spec_.num_units());
  if (probed_) probe_->End(step_ + 1, parameters_, gradients(), mean, threads_);
  result.learning_rate = NextLearningRate();
  const StageTimer timer(profile_, "optimizer");
  const ScopedNoDenormals no_denormals(!keeps_denormals_);
  const absl::Status updated = optimizer_.Update(
      {gradients(), mean, result.grad_norm, SumsSquaresByParameter() ? squares_.data() : nullptr},
      result.learning_rate, step_ + 1, parameters_, threads_);
  if (!updated.ok()) {
    half_done_ = absl::Status(
        updated.code(), absl::StrCat("step ", step_ + 1, " is half done: ", updated.message()));
    return half_done_;
  }
  result.step = ++step_;
  if (average_ != nullptr) average_->Update(parameters_, step_, threads_);
  return result;
}

absl::Status TrainSession::CheckFinite() const {
  PLUMB_RETURN_IF_ERROR(half_done_);
  const auto error = [this](absl::string_view what) {
    return absl::AbortedError(absl::StrCat("diverged at step ", step_, ": its update overflowed; ",
                                           what, " is not finite though the gradient was"));
  };
  const auto check = [&](absl::string_view kind, const TensorStats& stats,
                         const std::string& name) {
    if (stats.nonfinite == 0) return absl::OkStatus();
    const std::string place = PlaceOf(name);
    return error(absl::StrCat(kind, name, place.empty() ? "" : absl::StrCat(" (", place, ")")));
  };
  const ParameterLayout& layout = parameters_.layout();
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const ParameterLayout::Entry& entry = layout.entries[i];
    const int64_t n = entry.end - entry.begin;
    PLUMB_RETURN_IF_ERROR(check("",
                                parameters_.is_split(i)
                                    ? StatsOf(parameters_.split(i), n, threads_)
                                    : StatsOf(parameters_.floats(i), n, threads_),
                                entry.name));
    for (const Optimizer::State& state : optimizer_.StatesOf(i)) {
      PLUMB_RETURN_IF_ERROR(check(absl::StrCat(state.what, " of "),
                                  StatsOf(state.data, state.n, threads_), entry.name));
    }
  }
  for (const StateLayout::Entry& entry : parameters_.states().entries) {
    PLUMB_RETURN_IF_ERROR(check(
        "", StatsOf(parameters_.state_data() + entry.begin, entry.elements, threads_), entry.name));
  }
  return absl::OkStatus();
}

}  // namespace plumb
