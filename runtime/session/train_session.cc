// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/train_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <numeric>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"
#include "runtime/kernels/simd/tensor_stats.h"
#include "runtime/ranks/collectives.h"
#include "runtime/session/divergence.h"

namespace plumb {
namespace {

constexpr int64_t kFloatsPerLine = kAlignment / SizeOf(DType::kF32);

std::optional<TokenMasking> GetMasking(const TrainSpec& spec, int64_t vocab_size) {
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
        "masked_tokens needs a bidirectional model, and this one is causal; drop masked_tokens "
        "from "
        "the recipe, or set bidirectional: true in the model");
  }
  const int64_t vocabulary = model.dims.vocab_size;
  const int64_t token = spec.masked_tokens->mask_token.value_or(vocabulary - 1);
  if (token < vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("masked_tokens: mask_token ", token,
                                                 " is not in the vocabulary of ", vocabulary));
}

absl::Status CheckCorrections(const TrainSpec& spec, const ModelContext& context) {
  const auto is_correction = [](const ParameterSpec& parameter) { return parameter.is_correction; };
  if (spec.router_correction_rate == 0 ||
      std::any_of(context.parameters.begin(), context.parameters.end(), is_correction)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "router_correction_rate updates the corrections of routers, and the model has none; drop it "
      "from the recipe, or write experts { correction: true .. } in the model");
}

// Returns an error if memory runs out, so that this rank still sends what other ranks wait for.
absl::Status OrOutOfMemory(absl::FunctionRef<absl::Status()> work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory for a step");
  }
}

}  // namespace

absl::StatusOr<TrainSession::Plan> TrainSession::MakeOwnPlan(const ModelContext* context,
                                                             const BatchSource& batches,
                                                             const TrainSpec& spec, int64_t reserve,
                                                             int rank, int ranks) {
  PLUMB_RETURN_IF_ERROR(CheckSchedule(ScheduleSpec(spec)));
  PLUMB_RETURN_IF_ERROR(CheckMasking(spec, context->model));
  PLUMB_RETURN_IF_ERROR(CheckCorrections(spec, *context));
  PLUMB_RETURN_IF_ERROR(CheckRanks(*context, spec, ranks));
  PLUMB_ASSIGN_OR_RETURN(OptimizerPlan optimizer, PlanOptimizer(spec, *context));
  ExecutableCache executables(context, TrainProgram(spec, optimizer.updates.frozen),
                              /*gradients=*/true, TrainPasses(*context, spec));
  PLUMB_ASSIGN_OR_RETURN(const int64_t workspace, executables.Prepare(batches.max_seq()));
  const TrainMemory memory =
      PlanTrainMemory(*context, spec, optimizer, batches.max_seq(), workspace, rank, ranks);
  TrainMemory with_reserve = memory;
  with_reserve.validation = reserve;
  PLUMB_RETURN_IF_ERROR(CheckFits(with_reserve, spec, ProcessMemoryLimit()));
  Plan plan{std::move(executables), memory, std::move(optimizer), {}, {}};
  if (ranks == 1) return plan;
  const ParameterLayout layout(context->parameters, plan.optimizer.updates.frozen);
  plan.buckets = BucketPlan::Of(layout, ranks);
  for (const BucketPlan::Ready& ready :
       plan.buckets.ReadyIn(plan.executables.prepared(batches.max_seq()), layout)) {
    plan.order.push_back(ready.bucket);
  }
  return plan;
}

absl::StatusOr<TrainSession::Plan> TrainSession::MakePlan(const ModelContext* context,
                                                          const BatchSource& batches,
                                                          const TrainSpec& spec, int64_t reserve,
                                                          Communicator* ranks) {
  if (ranks == nullptr) return MakeOwnPlan(context, batches, spec, reserve, 0, 1);
  absl::StatusOr<Plan> plan =
      MakeOwnPlan(context, batches, spec, reserve, ranks->rank(), ranks->size());
  PLUMB_RETURN_IF_ERROR(AllOk(ranks, plan.status()));
  return plan;
}

absl::StatusOr<std::unique_ptr<TrainSession>> TrainSession::Create(const ModelContext* context,
                                                                   const Dataset* dataset,
                                                                   const TrainSpec& spec,
                                                                   int threads,
                                                                   Communicator* ranks) {
  if (ranks != nullptr && ranks->size() == 1) ranks = nullptr;
  TrainBatches::Options options;
  options.batch_size = spec.batch_size;
  options.micro_batches = spec.gradient_accumulation_steps;
  options.context_length = context->model.dims.context_length;
  options.seed = spec.seed;
  options.keep_order = spec.keep_order;
  options.padding = context->model.bidirectional ? -1 : 0;
  PLUMB_ASSIGN_OR_RETURN(TrainBatches made, TrainBatches::Create(dataset, options));
  auto batches = std::make_unique<TrainBatches>(std::move(made));
  PLUMB_ASSIGN_OR_RETURN(Plan plan, MakePlan(context, *batches, spec, /*reserve=*/0, ranks));
  auto parameters =
      std::make_unique<ParameterStore>(context->parameters, context->states, GetWeightFormat(spec));
  PLUMB_RETURN_IF_ERROR(
      DrawParameters(context->parameters, context->states, spec.seed, threads, *parameters));
  if (ranks != nullptr) {
    PLUMB_RETURN_IF_ERROR(AgreeToTrain(ranks, *context, spec, batches->max_seq(), *parameters));
  }
  auto session = std::unique_ptr<TrainSession>(new TrainSession(
      context, spec, parameters.get(), std::move(batches), std::move(plan), threads, ranks));
  session->own_parameters_ = std::move(parameters);
  return session;
}

absl::StatusOr<std::unique_ptr<TrainSession>> TrainSession::Create(
    const ModelContext* context, StoreMaker parameters, std::unique_ptr<BatchSource> batches,
    const TrainSpec& spec, int threads, int64_t reserve, Communicator* ranks) {
  if (ranks != nullptr && ranks->size() == 1) ranks = nullptr;
  PLUMB_ASSIGN_OR_RETURN(Plan plan, MakePlan(context, *batches, spec, reserve, ranks));
  PLUMB_ASSIGN_OR_RETURN(ParameterStore* const store, parameters());
  if (ranks != nullptr) {
    PLUMB_RETURN_IF_ERROR(AgreeToTrain(ranks, *context, spec, batches->max_seq(), *store));
  }
  return std::unique_ptr<TrainSession>(
      new TrainSession(context, spec, store, std::move(batches), std::move(plan), threads, ranks));
}

TrainSession::TrainSession(const ModelContext* context, const TrainSpec& spec,
                           ParameterStore* parameters, std::unique_ptr<BatchSource> batches,
                           Plan plan, int threads, Communicator* ranks)
    : context_(context),
      spec_(spec),
      schedule_(spec),
      threads_(threads),
      parameters_(*parameters),
      weights_(*context, GetWeightFormat(spec), parameters_, threads),
      ranks_(ranks),
      range_(ranks == nullptr ? UnitRange{0, spec.num_units()}
                              : UnitsOfRank(spec.num_units(), ranks->rank(), ranks->size())),
      sums_(ParameterLayout(context->parameters, plan.optimizer.updates.frozen), spec.num_units(),
            range_),
      optimizer_(context->parameters, std::move(plan.optimizer), parameters_),
      states_before_step_(parameters_.states().size * SizeOf(DType::kF32)),
      states_before_unit_(states_before_step_.size()),
      batches_(std::move(batches)),
      first_micro_batch_(GetMicroBatches(spec, range_).begin),
      targets_(static_cast<size_t>(spec.num_units())),
      masking_(GetMasking(spec, context->model.dims.vocab_size)),
      inputs_(context->model, spec.unit_rows(), batches_->max_seq()),
      random_(kAlignment),
      loss_(kAlignment),
      loss_weight_(kAlignment),
      host_loss_([this](const float* logits, float* gradient) {
        return ComputeHostLoss(logits, gradient);
      }),
      host_loss_function_(kAlignment),
      grad_squares_(SumsSquaresInProgram(*context)
                        ? static_cast<int64_t>(context->parameters.size()) * kAlignment
                        : 0),
      executables_(std::move(plan.executables)),
      planned_memory_(plan.memory) {
  for (int64_t i = 0; i < GetMicroBatches(spec, range_).size(); ++i) {
    micro_batches_.push_back(batches_->MakeBatch());
  }
  share_.losses.reserve(static_cast<size_t>(spec.num_units()));
  share_.squares.resize(SumsSquaresByParameter() ? parameters_.layout().entries.size() : 1);
  SetHostLoss(&host_loss_, host_loss_function_.as<int32_t>());
  if (spec.ema_decay > 0) {
    average_ = std::make_unique<WeightAverage>(*context, spec.ema_decay, parameters_);
  }
  if (ranks == nullptr) return;
  exchange_ = std::make_unique<GradientExchange>(
      ranks, std::move(plan.buckets), std::move(plan.order), spec.num_units(), &sums_, threads);
}

absl::Status TrainSession::BindExecutable(Executable* executable) const {
  PLUMB_RETURN_IF_ERROR(weights_.Bind(executable));
  PLUMB_RETURN_IF_ERROR(gradient_layout().Bind("grad.", sums_.pass(), executable));
  PLUMB_RETURN_IF_ERROR(inputs_.Bind(executable));
  PLUMB_RETURN_IF_ERROR(BindRandom(random_, executable));
  if (spec_.host_loss) {
    PLUMB_RETURN_IF_ERROR(executable->Bind(kHostLossInput, host_loss_function_.data()));
  } else if (spec_.num_units() > 1) {
    PLUMB_RETURN_IF_ERROR(executable->Bind(kLossWeightInput, loss_weight_.data()));
  }
  for (size_t i = 0; grad_squares_.size() > 0 && i < context_->parameters.size(); ++i) {
    if (gradient_layout().entries[i].is_frozen()) continue;
    PLUMB_RETURN_IF_ERROR(
        executable->Bind(absl::StrCat("grad_square.", context_->parameters[i].name),
                         grad_squares_.as<float>() + static_cast<int64_t>(i) * kFloatsPerLine));
  }
  return executable->Bind("loss", loss_.data());
}

void TrainSession::CopyStates(const float* from, float* to) const {
  std::copy_n(from, parameters_.states().size, to);
}

absl::Status TrainSession::SetProbe(int64_t every, absl::Span<const std::string> globs,
                                    ProbeObserver observer) {
  if (every < 0) {
    return absl::InvalidArgumentError("the number of steps between probes must be >= 0");
  }
  probe_.reset();
  probed_ = false;
  probe_every_ = every;
  if (every == 0) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(probe_,
                         Probe::Create(*context_, globs, weights_.format(), optimizer_.frozen()));
  probe_->SetObserver(std::move(observer));
  return absl::OkStatus();
}

absl::Status TrainSession::Diverged(absl::string_view what, const Executable* executable) {
  // Else the states of the failed run would be reported as the first non-finite tensor.
  CopyStates(states_before_unit_.as<float>(), parameters_.state_data());
  PLUMB_ASSIGN_OR_RETURN(const Executable::NonFinite first,
                         executable->RunAndFindNonFinite(threads_));
  if (probe_ != nullptr) {
    CopyStates(states_before_unit_.as<float>(), parameters_.state_data());
    probe_->Begin();
    PLUMB_RETURN_IF_ERROR(probe_->Run(*executable, threads_));
    probe_->End(step_ + 1, parameters_, gradient_layout(), sums_.pass(), threads_);
    probe_->set_diverged();
    probed_ = true;
  }
  return absl::AbortedError(absl::StrCat(
      "diverged at step ", step_ + 1, ": ", what,
      first.name.empty()
          ? ""
          : absl::StrCat("; the first tensor that is not finite is ", DescribeNonFinite(first))));
}

TrainSession::UnitIds TrainSession::GetUnitIds(int64_t unit) const {
  const int64_t parts = spec_.units_per_micro_batch();
  const Batch& batch = micro_batches_[static_cast<size_t>(unit / parts - first_micro_batch_)];
  const int64_t n = spec_.unit_rows() * batch.seq, at = unit % parts * n;
  return {batch.tokens.data() + at, batch.positions.data() + at,
          absl::MakeConstSpan(batch.targets.data() + at, static_cast<size_t>(n)), batch.seq};
}

absl::StatusOr<double> TrainSession::ComputeHostLoss(const float* logits, float* gradient) {
  const UnitIds ids = GetUnitIds(unit_);
  const int64_t parts = spec_.units_per_micro_batch();
  UnitLoss unit;
  unit.step = step_ + 1;
  unit.micro_batch = unit_ / parts;
  unit.first_row = unit_ % parts * spec_.unit_rows();
  unit.rows = spec_.unit_rows();
  unit.seq = ids.seq;
  unit.tokens = ids.tokens;
  unit.targets = ids.targets.data();
  unit.logits = logits;
  unit.gradient = gradient;
  PLUMB_ASSIGN_OR_RETURN(host_loss_value_, unit_loss_(unit));
  return host_loss_value_;
}

absl::Status TrainSession::FillBatches() {
  const StageTimer timer(profile_, "batches");
  int64_t index = step_ * spec_.gradient_accumulation_steps + first_micro_batch_;
  for (Batch& batch : micro_batches_) {
    PLUMB_RETURN_IF_ERROR(batches_->TryFill(index, &batch));
    if (masking_.has_value()) {
      MaskTokens(*masking_, kTrainingMasks, index * spec_.batch_size, &batch);
    }
    ++index;
  }
  for (int64_t unit = range_.begin; unit < range_.end; ++unit) {
    const absl::Span<const int32_t> targets = GetUnitIds(unit).targets;
    targets_[static_cast<size_t>(unit)] =
        std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
  }
  return absl::OkStatus();
}

absl::Status TrainSession::BeginStep() {
  if (ranks_ == nullptr) {
    PLUMB_RETURN_IF_ERROR(FillBatches());
  } else {
    const absl::Status filled = OrOutOfMemory([this] { return FillBatches(); });
    const StageTimer timer(profile_, "results: sending and waiting");
    PLUMB_RETURN_IF_ERROR(ShareTargets(ranks_, filled, range_, &targets_));
  }
  step_targets_ = std::accumulate(targets_.begin(), targets_.end(), int64_t{0});
  if (step_targets_ > 0 || spec_.host_loss) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("step ", step_ + 1,
                   masking_.has_value() ? ": has no token that can be masked; a step needs one"
                                        : ": all targets are -1; a step needs one that is not"));
}

absl::StatusOr<const Executable*> TrainSession::GetProgram(int64_t seq) {
  const StageTimer timer(profile_, "compiling");
  const auto bind = [this](Executable* executable) { return BindExecutable(executable); };
  return executables_.Get(seq, bind);
}

absl::Status TrainSession::RunProgram(const Executable& executable, bool sends) {
  if (probed_) {
    const StageTimer timer(profile_, "probed passes");
    return probe_->Run(executable, threads_);
  }
  if (!sends) {
    return profile_ != nullptr ? profile_->Run(executable, threads_) : executable.Run(threads_);
  }
  std::vector<BucketPlan::Ready>& ready = ready_[&executable];
  if (ready.empty()) ready = exchange_->plan().ReadyIn(executable, gradient_layout());
  size_t there = 0;
  const auto after = [&](size_t node) {
    const ScopedNoDenormals no_denormals;
    for (; there < ready.size() && ready[there].node <= node; ++there) {
      exchange_->SetReady(ready[there].bucket);
    }
    exchange_->Progress();
  };
  const Executable::AfterNode after_node = after;
  return profile_ != nullptr ? profile_->Run(executable, threads_, &after_node)
                             : executable.Run(threads_, after_node);
}

int64_t TrainSession::SetInputs(int64_t unit) {
  const StageTimer timer(profile_, "batches");
  const UnitIds ids = GetUnitIds(unit);
  inputs_.Set({ids.tokens, ids.positions, ids.targets.data()}, ids.seq);
  *loss_weight_.as<float>() = static_cast<float>(LossFactor(unit));
  unit_ = unit;
  SetRandom({spec_.seed, step_, unit * spec_.unit_rows(), batches_->max_seq()}, &random_);
  const StateLayout::Entry* step = parameters_.states().Find(StateName(kStepBuffer));
  if (step != nullptr) parameters_.state_data()[step->begin] = static_cast<float>(step_ + 1);
  return ids.seq;
}

absl::StatusOr<TrainSession::Unit> TrainSession::RunUnit(int64_t unit, bool sends) {
  Unit done = {};
  PLUMB_ASSIGN_OR_RETURN(done.executable, GetProgram(SetInputs(unit)));
  CopyStates(parameters_.state_data(), states_before_unit_.as<float>());
  PLUMB_RETURN_IF_ERROR(RunProgram(*done.executable, sends));
  done.loss = spec_.host_loss ? host_loss_value_ : static_cast<double>(*loss_.as<float>());
  if (sends) return done;
  const StageTimer timer(profile_, "gradient norm");
  const ScopedNoDenormals no_denormals;
  done.grad_square = std::isfinite(done.loss) ? GradSquare() : 0;
  return done;
}

absl::Status TrainSession::CheckUnit(const Unit& unit) {
  if (!std::isfinite(unit.loss)) {
    return Diverged(absl::StrCat("the loss is ", unit.loss), unit.executable);
  }
  if (!std::isfinite(unit.grad_square)) {
    return Diverged("a gradient is not finite", unit.executable);
  }
  return absl::OkStatus();
}

double TrainSession::GradSquare() const {
  double sum = 0;
  for (int64_t i = 0; i < grad_squares_.size() / kAlignment; ++i) {
    sum += static_cast<double>(grad_squares_.as<float>()[i * kFloatsPerLine]);
  }
  // The program's sums are f32, which overflow above 3e38 and are imprecise below 1e-38. Outside of
  // this range, with a margin below, the squares are summed again in double.
  constexpr double kMin = 1e-30;
  if (std::isfinite(sum) && sum > kMin) return sum;
  return SumOfSquares(sums_.pass(), gradient_layout().size, threads_);
}

absl::StatusOr<StepResult> TrainSession::Step() {
  PLUMB_RETURN_IF_ERROR(half_done_);
  if (step_ == 0) {
    // Not earlier, because a host may write the weights after it has created the trainer.
    const ScopedNoDenormals no_denormals;
    optimizer_.Normalize(parameters_, threads_);
  }
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
  if (!result.ok() && !absl::IsAborted(result.status())) probed_ = false;  // incomplete
  return result;
}

absl::Status TrainSession::RunUnits() {
  for (int64_t unit = range_.begin; unit < range_.end; ++unit) {
    const bool is_last = unit + 1 == range_.end, sends = is_last && ranks_ != nullptr;
    PLUMB_ASSIGN_OR_RETURN(Unit done, RunUnit(unit, sends));
    if (sends) {
      // This must precede a repeated pass, which finds the first non-finite tensor.
      PLUMB_RETURN_IF_ERROR(FinishExchange());
      done.grad_square = exchange_->unit_square();
    }
    PLUMB_RETURN_IF_ERROR(CheckUnit(done));
    share_.losses.push_back(done.loss);
    if (sends) continue;
    if (!SumsSquaresByParameter()) {
      share_.squares[0] = done.grad_square;
      continue;
    }
    const StageTimer timer(profile_, "gradient accumulation");
    const ScopedNoDenormals no_denormals;
    if (is_last) {
      sums_.AddLast({0, gradient_layout().size}, threads_, share_.squares.data());
    } else {
      sums_.Add(threads_);
    }
  }
  return absl::OkStatus();
}

absl::Status TrainSession::FinishExchange() {
  const ScopedNoDenormals no_denormals;
  return exchange_->Finish();
}

absl::Status TrainSession::RunAllUnits() {
  PLUMB_RETURN_IF_ERROR(BeginStep());
  sums_.Begin();
  share_.status = absl::OkStatus();
  share_.losses.clear();
  if (ranks_ == nullptr) return RunUnits();
  exchange_->Begin(profile_);
  share_.status = OrOutOfMemory([this] { return RunUnits(); });
  // Also after an error, because other ranks wait for this rank's messages.
  PLUMB_RETURN_IF_ERROR(FinishExchange());
  share_.squares = exchange_->squares();
  const StageTimer timer(profile_, "results: sending and waiting");
  return ShareStep(ranks_, exchange_->plan(), spec_.num_units(), &share_);
}

absl::Status TrainSession::Update(const StepResult& result) {
  absl::Status updated;
  {
    const StageTimer timer(profile_, "optimizer");
    const ScopedNoDenormals no_denormals;
    updated = optimizer_.Update(
        {gradients(), result.grad_norm, SumsSquaresByParameter() ? share_.squares.data() : nullptr},
        result.learning_rate, step_ + 1, parameters_, threads_);
  }
  // Muon's products may fail on any rank.
  if (ranks_ != nullptr && spec_.UsesMuon()) updated = RankError(AllOk(ranks_, updated));
  if (!updated.ok() || spec_.router_correction_rate == 0) return updated;
  return UpdateCorrections();
}

// Loads are whole numbers, whose sums over layers, units and ranks are exact in any order.
absl::Status TrainSession::UpdateCorrections() {
  const std::vector<StateLayout::Entry>& entries = parameters_.states().entries;
  std::map<std::string, std::vector<double>> loads;  // keyed by the correction's name
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& correction = context_->states[i].correction;
    if (correction.empty()) continue;
    std::vector<double>& sums = loads[correction];
    sums.resize(static_cast<size_t>(entries[i].elements));
    float* const load = parameters_.state_data() + entries[i].begin;
    for (size_t e = 0; e < sums.size(); ++e) {
      sums[e] += static_cast<double>(std::exchange(load[e], 0.0f));
    }
  }
  for (auto& [name, sums] : loads) {
    if (ranks_ != nullptr) {
      const absl::StatusOr<std::vector<double>> all = AllGather(ranks_, sums);
      if (!all.ok()) return RankError(all.status());
      const size_t n = sums.size();
      std::fill(sums.begin(), sums.end(), 0);
      for (size_t k = 0; k < all->size(); ++k) sums[k % n] += (*all)[k];
    }
    const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    const std::vector<ParameterLayout::Entry>& weights = parameters_.layout().entries;
    const auto at = std::find_if(weights.begin(), weights.end(),
                                 [&name = name](const auto& entry) { return entry.name == name; });
    float* const correction = parameters_.floats(static_cast<size_t>(at - weights.begin()));
    for (size_t e = 0; e < sums.size(); ++e) {
      const double surplus = sums[e] * static_cast<double>(sums.size()) - total;
      const double sign = surplus < 0 ? 1 : surplus > 0 ? -1 : 0;
      correction[e] += static_cast<float>(sign * spec_.router_correction_rate);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> TrainSession::TryStep() {
  probed_ = probe_ != nullptr && (step_ == 0 || (step_ + 1) % probe_every_ == 0);
  if (probed_) probe_->Begin();
  PLUMB_RETURN_IF_ERROR(RunAllUnits());
  StepResult result;
  for (int64_t unit = 0; unit < spec_.num_units(); ++unit) {
    result.loss += share_.losses[static_cast<size_t>(unit)] * LossFactor(unit);
  }
  result.tokens = step_targets_;
  const double grad_square = std::accumulate(share_.squares.begin(), share_.squares.end(), 0.0);
  if (!std::isfinite(grad_square)) {
    return absl::AbortedError(absl::StrCat("diverged at step ", step_ + 1,
                                           ": the sum of the units' gradients is not finite"));
  }
  result.grad_norm = std::sqrt(grad_square);
  if (probed_) probe_->End(step_ + 1, parameters_, gradient_layout(), gradients(), threads_);
  result.learning_rate = NextLearningRate();
  if (const absl::Status updated = Update(result); !updated.ok()) {
    half_done_ = absl::Status(
        updated.code(),
        absl::StrCat("step ", step_ + 1,
                     " failed in its update, so the weights cannot be used: ", updated.message()));
    return half_done_;
  }
  result.step = ++step_;
  if (average_ != nullptr) {
    const StageTimer timer(profile_, "average of weights");
    const ScopedNoDenormals no_denormals;
    average_->Update(parameters_, step_, threads_);
  }
  return result;
}

}  // namespace plumb
