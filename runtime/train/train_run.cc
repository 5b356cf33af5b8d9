// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/train_run.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/data_passes.h"
#include "runtime/train/run_plugins.h"
#include "runtime/train/train_run_state.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Records the recipe in the state of a checkpoint, so that edits of train.pbtxt can be detected.
std::string WithTraining(const std::string& state, const Recipe& recipe) {
  Json json = Json::parse(state);
  json["train"] = recipe.text;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Interval, in seconds, at which a run checks that its directory still exists.
constexpr double kLookInterval = 1;

// Returns the disk space of a run that starts at step 0 in `out`, which may be new; "" writes
// nothing.
TrainingDisk PlanDisk(const TrainingMemory& memory, const Recipe& recipe, LastCheckpoint last,
                      const std::string& out) {
  const v1::Train& fields = recipe.fields;
  const int64_t interval = fields.checkpoint_interval(), steps = fields.max_steps();
  TrainingDisk disk;
  disk.checkpoint = memory.weights + memory.norm_states / 3;  // one of its copies
  const bool only_last = interval == 0 && last != LastCheckpoint::kResumable;
  if (!only_last) disk.checkpoint += memory.moments;
  // Counts checkpoints made by checkpoint_interval, including the last; those triggered by time may
  // be added. An old one is deleted only when the new one is complete.
  const int64_t made = interval > 0 ? (steps + interval - 1) / interval : 1;
  const int64_t kept = fields.keep_checkpoints();
  disk.checkpoints = kept > 0 && made > kept ? kept + 1 : made;
  if (only_last && last == LastCheckpoint::kNone) disk.checkpoints = 0;
  constexpr int64_t kMetricsRow = 60;
  disk.total = disk.checkpoints * disk.checkpoint + kMetricsRow * steps;
  if (!out.empty()) disk.available = FreeSpace(out);
  return disk;
}

// Fails with kResourceExhausted if the disk has too little space for the run.
absl::Status CheckFits(const TrainingDisk& disk, const std::string& out) {
  if (disk.available < 0 || disk.total <= disk.available) return absl::OkStatus();
  const auto size = [](int64_t bytes) {
    return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  };
  return absl::ResourceExhaustedError(
      absl::StrCat(out, ": the disk has ", size(disk.available), " left, and the run writes ",
                   size(disk.total), ", of them ", disk.checkpoints, " x ", size(disk.checkpoint),
                   " for checkpoints; free some, choose another directory, or lower "
                   "train.keep_checkpoints"));
}

}  // namespace

// Returns the initial state of a run, as recorded in run.json and its checkpoints.
absl::StatusOr<std::string> TrainRunState::State() const {
  PLUMB_ASSIGN_OR_RETURN(const std::string norms, ToStatus(model->Norms()));
  const Json state = {{"data", data->name()},          {"data_hash", data->data_hash()},
                      {"seed", fields().seed()},       {"dtype", GetDTypeName(recipe)},
                      {"plugins", Json::parse(norms)}, {"plumb", api::Version()},
                      {"threads", info.threads},       {"matmul", runtime->matmul()},
                      {"memory", info.memory.total}};
  // The file name need not be valid UTF-8.
  return state.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status TrainRunState::CreateModel(const api::Spec& spec) {
  PLUMB_ASSIGN_OR_RETURN(model, ToStatus(api::Model::Create(runtime->api(), spec)));
  PLUMB_ASSIGN_OR_RETURN(model_text, ToStatus(model->Text()));
  return absl::OkStatus();
}

absl::Status TrainRunState::LoadData(const std::string& path, const Tokenizer& tokenizer) {
  PLUMB_ASSIGN_OR_RETURN(Dataset read, Dataset::Load(path, ToDatasetOptions(recipe), &tokenizer));
  data = std::make_shared<const Dataset>(std::move(read));
  return absl::OkStatus();
}

absl::Status TrainRunState::ReadNew(const TrainRequest& request) {
  if (request.model_path.empty()) {
    return absl::InvalidArgumentError("MODEL is missing");
  }
  Overrides settings = request.train_overrides;
  if (request.seed.has_value()) settings.emplace_back("seed", absl::StrCat(*request.seed));
  PLUMB_ASSIGN_OR_RETURN(
      recipe, ReadRecipe(request.train_path, settings, ranks == nullptr ? 1 : ranks->size()));
  info.chosen_units = recipe.chosen_units;
  PLUMB_ASSIGN_OR_RETURN(api::Spec spec, ReadSpec(request.model_path, request.model_overrides));
  DatasetCache own;
  DatasetCache* const datasets = request.datasets == nullptr ? &own : request.datasets;
  PLUMB_ASSIGN_OR_RETURN(data, datasets->Load(request.data_path, recipe));
  PLUMB_RETURN_IF_ERROR(
      FitVocabulary(data->tokenizer(), recipe, request.data_path, request.model_path, &spec));
  return CreateModel(spec);
}

absl::Status TrainRunState::OpenNew(const TrainRequest& request) {
  if (!request.out.empty()) PLUMB_RETURN_IF_ERROR(CheckMayBegin(request.out));
  const absl::Status read = ReadNew(request);
  PLUMB_RETURN_IF_ERROR(ranks == nullptr ? read : ranks->AllOk(read));
  PLUMB_RETURN_IF_ERROR(CreateTrainer(request));
  if (!request.init.empty()) PLUMB_RETURN_IF_ERROR(ReadInitialWeights(request.init));
  PLUMB_RETURN_IF_ERROR(SetProbe(request.probe));
  info.disk = PlanDisk(info.memory, recipe, request.last_checkpoint, request.out);
  if (request.out.empty()) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(CheckFits(info.disk, request.out));
  if (request.dry_run) return absl::OkStatus();
  // Nothing is written until all of the above has succeeded. The directory is checked again under
  // the lock, because another process may have begun a run.
  PLUMB_ASSIGN_OR_RETURN(lock, LockRun(request.out));
  PLUMB_RETURN_IF_ERROR(CheckMayBegin(request.out));
  PLUMB_RETURN_IF_ERROR(RemoveRunTemporaries(request.out));
  // Discards metrics of a run that was killed before it had a model.pbtxt.
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateMetrics(RunMetricsPath(request.out), 0)));
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateProbes(RunProbesPath(request.out), 0)));
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateIncidents(RunIncidentsPath(request.out), 0)));
  PLUMB_ASSIGN_OR_RETURN(const std::string state, State());
  PLUMB_ASSIGN_OR_RETURN(const RunPlugins plugins, GetPlugins(runtime, *model));
  PLUMB_ASSIGN_OR_RETURN(const std::string init, IdentifyWeights(request.init));
  PLUMB_ASSIGN_OR_RETURN(const RunIdentity identity, Identify(request, init));
  return WriteRunFiles(request.out, model_text, recipe, data->tokenizer(),
                       identity.InRunJson(WithPlugins(
                           WithInit(WithProbe(state, probe_options), info.initial), plugins)));
}

absl::StatusOr<RunIdentity> TrainRunState::Identify(const TrainRequest& request,
                                                    const std::string& init) const {
  RunInputs inputs;
  inputs.model = model_text;
  inputs.recipe = recipe.text;
  inputs.data = data->data_hash();
  inputs.tokenizer = HashOfTokenizer(data->tokenizer());
  PLUMB_ASSIGN_OR_RETURN(inputs.norms, IdentifyNorms(runtime, *model));
  inputs.init = init;
  inputs.seed = fields().seed();
  inputs.probe = probe_options;
  inputs.samples = request.samples;
  return RunIdentity::Of(inputs);
}

absl::Status TrainRunState::WithStates(absl::FunctionRef<absl::Status()> use) {
  return ranks == nullptr ? use() : ranks->WithStates(use);
}

absl::Status TrainRunState::ReadInitialWeights(const std::string& run) {
  return WithStates([&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(info.initial, InitFromRun(runtime, run, &*trainer));
    return absl::OkStatus();
  });
}

absl::Status TrainRunState::CheckDirectory() const {
  if (lock->Holds(info.out)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(info.out, ": was removed or replaced while the run was training into it"));
}

absl::Status TrainRunState::PlanValidation() {
  const api::ModelInfo of_model = model->Info();
  EvalBatches::Options options;
  options.batch_size = fields().batch_size();
  options.context_length = of_model.context_length;
  options.padding = of_model.bidirectional != 0 ? -1 : 0;
  PLUMB_ASSIGN_OR_RETURN(EvalBatches held_out,
                         EvalBatches::Create(data.get(), Split::kValidation, options));
  // Uses the trained format, so that the evaluator reads the trainer's weights in place.
  api::EvaluatorOptions evaluator = ToEvaluatorOptions(held_out);
  const bool is_bf16 = fields().dtype() == v1::Train::BF16;
  evaluator.weights = is_bf16 ? api::Weights::kBf16 : api::Weights::kF32;
  PLUMB_ASSIGN_OR_RETURN(const int64_t bytes, ToStatus(api::Evaluator::Plan(*model, evaluator)));
  Batch first = held_out.MakeBatch();
  validation.emplace(Validation{held_out, std::move(first), evaluator, GetMasking(recipe, of_model),
                                bytes, std::nullopt});
  return absl::OkStatus();
}

absl::Status TrainRunState::CreateTrainer(const TrainRequest& request) {
  if (ranks != nullptr) {
    PLUMB_RETURN_IF_ERROR(
        ranks->CheckAgree(runtime, recipe, model_text, *model, *data, request.require_same_bits));
  }
  info.memory_limit = ProcessMemoryLimit();
  PLUMB_ASSIGN_OR_RETURN(batches, MakeTrainBatches(data.get(), recipe, model->Info()));
  micro_batch = batches->MakeBatch();
  const bool validates = ranks == nullptr || ranks->is_first();
  if (validates && data->has_targets(Split::kValidation)) PLUMB_RETURN_IF_ERROR(PlanValidation());
  api::TrainerOptions options;
  options.recipe = recipe.text;
  options.seq = batches->max_seq();
  options.draw_weights = true;
  options.reserve = validation.has_value() ? validation->bytes : 0;
  if (ranks != nullptr) options.communicator = ranks->communicator();
  absl::StatusOr<api::Trainer> created = ToStatus(api::Trainer::Create(*model, options));
  if (!created.ok()) return recipe.InFile(created.status());
  trainer = *std::move(created);
  if (ranks != nullptr) ranks->SetTrainer(&*trainer);
  info.memory = ToTrainingMemory(trainer->Memory(), recipe, batches->max_seq());
  if (!validation.has_value()) return absl::OkStatus();
  info.memory.validation = validation->bytes;
  info.memory.total += validation->bytes;
  PLUMB_ASSIGN_OR_RETURN(validation->evaluator,
                         ToStatus(api::Evaluator::Create(*model, validation->options)));
  return absl::OkStatus();
}

absl::Status TrainRunState::SetProbe(const ProbeOptions& options) {
  probe_options = options;
  if (options.every <= 0) probe_options = ProbeOptions();
  std::vector<std::string> points = probe_options.points;
  PLUMB_ASSIGN_OR_RETURN(WeightFigures figures, WeightFigures::Create(*model, &points));
  if (figures.any() && ranks != nullptr) {
    return absl::InvalidArgumentError(
        "updates, spectral and gates are probed by runs of one process; drop them, or mpirun");
  }
  weight_figures = figures.any() ? std::make_unique<WeightFigures>(std::move(figures)) : nullptr;
  const absl::Status set = ToStatus(trainer->SetProbe(probe_options.every, points));
  if (!absl::IsInvalidArgument(set)) return set;
  return absl::InvalidArgumentError(
      absl::StrCat(set.message(), "; plumb explain MODEL --stage probes lists them"));
}

// Writes the figures of the last step, if it was probed, and adds them to the report.
absl::Status TrainRunState::TakeProbe(bool diverged, StepReport* report) {
  if (probe_options.every == 0) return absl::OkStatus();
  if (!diverged && !ProbeDue(step())) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(report->probe, probe->Take(&*trainer, diverged));
  return absl::OkStatus();
}

TrainRun::TrainRun(std::unique_ptr<TrainRunState> state) : state_(std::move(state)) {}
TrainRun::~TrainRun() = default;

absl::StatusOr<std::unique_ptr<TrainRun>> TrainRun::Open(HostRuntime* runtime,
                                                         const TrainRequest& request) {
  if (request.resume && request.out.empty()) {
    return absl::InvalidArgumentError("there is no run to resume; name it with --out");
  }
  if (request.resume && request.dry_run) {
    return absl::InvalidArgumentError("a dry run is of a new run; drop --resume");
  }
  auto state = std::make_unique<TrainRunState>(runtime);
  PLUMB_RETURN_IF_ERROR(
      OrOutOfMemory("the parameters, the optimizer state and the training program",
                    [&] { return state->Open(request); }));
  return std::unique_ptr<TrainRun>(new TrainRun(std::move(state)));
}

absl::Status TrainRunState::Open(const TrainRequest& request) {
  info.threads = runtime->threads();
  info.out = request.out;
  last_checkpoint = request.last_checkpoint;
  if (request.launch != nullptr && request.launch->size() > 1) {
    ranks = std::make_unique<TrainRanks>(request.launch);
  }
  PLUMB_ASSIGN_OR_RETURN(const bool resumes, ResumesFiles(request));
  if (ranks != nullptr && !ranks->is_first()) return OpenFollower(request, resumes);
  PLUMB_RETURN_IF_ERROR(resumes ? OpenExisting(request) : OpenNew(request));
  if (request.resume && !resumes) {
    runtime->Warn(
        absl::StrCat(request.out, ": holds no run yet, so the run starts from its beginning"));
  }
  const api::ModelInfo of_model = model->Info();
  PLUMB_ASSIGN_OR_RETURN(info.model_name, NameInText(model_text));
  info.data = data->Description();
  info.data_advice = FormatAdvice(*data, recipe);
  info.parameters = of_model.parameters;
  info.first_step = step();
  info.max_steps = fields().max_steps();
  info.seed = fields().seed();
  info.dtype = GetDTypeName(recipe);
  info.optimizer = OptimizerText(recipe);
  info.context_length = of_model.context_length;
  info.skipped_documents = data->num_without_targets(Split::kTrain, info.context_length);
  info.cropped_documents =
      data->num_cropped(Split::kTrain, info.context_length) - info.skipped_documents;
  info.probe_every = probe_options.every;
  const bool writes = !request.out.empty() && !request.dry_run;
  probe =
      std::make_unique<RunProbe>(writes ? RunProbesPath(request.out) : "", weight_figures.get());
  if (writes) {
    PLUMB_ASSIGN_OR_RETURN(MetricsWriter writer, MetricsWriter::Open(RunMetricsPath(request.out)));
    metrics = std::make_unique<MetricsWriter>(std::move(writer));
    incident_log = std::make_unique<IncidentLog>(RunIncidentsPath(request.out));
  }
  if (checkpoint_step >= 0 && !request.train_overrides.empty()) {
    // The new checkpoint records the present train.pbtxt, so that overrides do not count as edits.
    checkpoint_step = -1;
    PLUMB_RETURN_IF_ERROR(SaveCheckpoint().status());
  }
  return absl::OkStatus();
}

const TrainInfo& TrainRun::info() const { return state_->info; }
int64_t TrainRun::step() const { return state_->step(); }
IncidentCounts TrainRun::incidents() const { return state_->incidents.counts; }
bool TrainRun::done() const { return state_->AllStepsDone(); }

absl::Status TrainRun::StartProfile() { return ToStatus(state_->trainer->Profile(true)); }
Profile TrainRun::profile() const { return ToProfile(state_->trainer->ProfileRows()); }

absl::StatusOr<api::StepInfo> TrainRunState::StepOn(int64_t number) {
  const int64_t first = (number - 1) * fields().gradient_accumulation_steps();
  return StepOnBatches(first, &*batches, &micro_batch, &*trainer);
}

absl::StatusOr<api::StepInfo> TrainRunState::StepUntilFinite(StepReport* report) {
  for (;;) {
    if (ProbeDue(step() + 1)) PLUMB_RETURN_IF_ERROR(probe->BeginStep(&*trainer));
    const Clock::time_point start = Clock::now();
    const int64_t next = step() + 1 + incidents.batches_skipped;
    absl::StatusOr<api::StepInfo> stepped =
        ranks == nullptr ? StepOn(next)
                         : ranks->Step(
                               next, [&] { return StepOn(next); }, &report->stop_wanted);
    report->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (absl::IsAborted(stepped.status())) {
      // The probe of the diverged step is logged too, but the divergence is the error to return.
      TakeProbe(/*diverged=*/true, report).IgnoreError();
      PLUMB_RETURN_IF_ERROR(HandleDivergence(stepped.status(), /*weights_are_lost=*/false, report));
      continue;
    }
    if (!stepped.ok() || metrics == nullptr || !CheckpointDue(Clock::now())) return stepped;
    // An update can overflow even if its gradient was finite. Checkpoints must not contain such
    // weights.
    const absl::Status finite = ToStatus(trainer->Check());
    if (finite.ok()) return stepped;
    PLUMB_RETURN_IF_ERROR(ToStatus(trainer->SetSteps(step() - 1)));
    PLUMB_RETURN_IF_ERROR(HandleDivergence(finite, /*weights_are_lost=*/true, report));
  }
}

absl::StatusOr<StepReport> TrainRun::Step() {
  if (done()) return absl::OutOfRangeError("all steps are done");
  return OrOutOfMemory("a training step", [this] { return state_->Step(); });
}

absl::StatusOr<StepReport> TrainRunState::Step() {
  StepReport report;
  PLUMB_ASSIGN_OR_RETURN(const api::StepInfo result, StepUntilFinite(&report));
  report.step = result.step;
  report.loss = static_cast<float>(result.loss);
  report.learning_rate = result.learning_rate;
  report.gradient_norm = static_cast<float>(result.gradient_norm);
  report.tokens = result.tokens;
  PLUMB_RETURN_IF_ERROR(TakeProbe(/*diverged=*/false, &report));
  PLUMB_RETURN_IF_ERROR(NoteSpike(&report));
  if (fields().eval_interval() > 0 && validation.has_value() && Due(fields().eval_interval())) {
    const absl::StatusOr<double> loss = ValidationLoss(fields().eval_batches());
    if (absl::IsAborted(loss.status())) {
      PLUMB_RETURN_IF_ERROR(ToStatus(trainer->SetSteps(step() - 1)));
      return HandleDivergence(loss.status(), /*weights_are_lost=*/true, &report);
    }
    PLUMB_RETURN_IF_ERROR(loss.status());
    report.val_loss = *loss;
  }
  if (metrics == nullptr) return report;
  PLUMB_RETURN_IF_ERROR(metrics->Append(report));
  const Clock::time_point now = Clock::now();
  if (std::chrono::duration<double>(now - looked_at).count() > kLookInterval) {
    looked_at = now;
    PLUMB_RETURN_IF_ERROR(CheckDirectory());
  }
  if (AllStepsDone() && last_checkpoint == LastCheckpoint::kNone) {
    PLUMB_RETURN_IF_ERROR(SyncLogs());
    PLUMB_RETURN_IF_ERROR(RemoveCheckpoints(info.out));
  } else if (CheckpointDue(now)) {
    PLUMB_ASSIGN_OR_RETURN(report.checkpoint, SaveCheckpoint());
  }
  return report;
}

absl::StatusOr<std::string> TrainRun::SaveCheckpoint() {
  return OrOutOfMemory("a checkpoint", [this] { return state_->SaveCheckpoint(); });
}

absl::StatusOr<std::string> TrainRunState::SaveCheckpoint() {
  if (metrics == nullptr) {
    return absl::InvalidArgumentError("a run that writes no files has no checkpoints");
  }
  if (checkpoint_step == step()) return checkpoint_path;
  PLUMB_RETURN_IF_ERROR(ToStatus(trainer->Check()));
  if (!incidents.losses.is_high()) incidents.last_good = step();
  PLUMB_RETURN_IF_ERROR(WriteCheckpointNow());
  return checkpoint_path;
}

absl::Status TrainRunState::SyncLogs() {
  PLUMB_RETURN_IF_ERROR(metrics->Sync());
  PLUMB_RETURN_IF_ERROR(probe->Sync());
  return incident_log->Sync();
}

absl::Status TrainRunState::WriteCheckpointNow() {
  const Clock::time_point begin = Clock::now();
  PLUMB_RETURN_IF_ERROR(CheckDirectory());
  PLUMB_RETURN_IF_ERROR(SyncLogs());
  const bool only_weights = AllStepsDone() && last_checkpoint == LastCheckpoint::kWeights;
  const std::vector<TensorToWrite> model_tensors = StateTensors(&*trainer, api::State::kModel);
  std::vector<TensorToWrite> optimizer;
  if (!only_weights) optimizer = StateTensors(&*trainer, api::State::kOptimizer);
  PLUMB_ASSIGN_OR_RETURN(const std::string state, State());
  CheckpointContents contents;
  contents.step = step();
  contents.last_good = only_weights ? step() : incidents.last_good;
  contents.model = model_tensors;
  contents.optimizer = optimizer;
  contents.state = WithIncidents(WithTraining(state, recipe), incidents);
  contents.metadata = {{"plumb", api::Version()},
                       {"model", model_text},
                       {"data_hash", data->data_hash()},
                       {"seed", absl::StrCat(fields().seed())}};
  const int keep = only_weights ? 1 : fields().keep_checkpoints();
  PLUMB_RETURN_IF_ERROR(WriteCheckpoint(info.out, contents, keep));
  checkpoint_path = CheckpointPath(info.out, step());
  checkpoint_step = step();
  saved_at = Clock::now();
  save_seconds = std::chrono::duration<double>(saved_at - begin).count();
  return absl::OkStatus();
}

absl::StatusOr<std::string> TrainRun::Weights() {
  return OrOutOfMemory("the weights", [this]() -> absl::StatusOr<std::string> {
    const auto tensors = StateTensors(&*state_->trainer, api::State::kModel);
    PLUMB_ASSIGN_OR_RETURN(const SafetensorsImage image, SafetensorsImage::Create(tensors, {}));
    std::string content;
    content.reserve(static_cast<size_t>(image.bytes()));
    PLUMB_RETURN_IF_ERROR(image.Produce([&content](absl::string_view piece) {
      content.append(piece.data(), piece.size());
      return absl::OkStatus();
    }));
    return content;
  });
}

absl::StatusOr<double> TrainRunState::ValidationLoss(int64_t max_batches) {
  PLUMB_ASSIGN_OR_RETURN(const SplitLoss loss,
                         MeasureLoss(validation->batches, max_batches, validation->masking,
                                     &*validation->evaluator, &validation->batch));
  if (!std::isfinite(loss.loss)) {
    return absl::AbortedError(
        absl::StrCat("the validation loss is ", loss.loss, " after step ", step()));
  }
  return loss.loss;
}

absl::StatusOr<double> TrainRun::ValidationLoss() {
  if (!state_->validation.has_value()) {
    return absl::InvalidArgumentError("there is no validation data; set data.val_fraction");
  }
  return OrOutOfMemory("the validation program",
                       [&] { return state_->ValidationLoss(/*max_batches=*/0); });
}

}  // namespace plumb
