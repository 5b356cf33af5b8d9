#include "runtime/tools/train.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/tools/describe_data.h"
#include "runtime/tools/init_from_run.h"
#include "runtime/tools/model_for_data.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_room.h"
#include "runtime/tools/train_run_impl.h"
#include "runtime/tools/trainer_tensors.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// The state of a checkpoint says how it was trained, so that edits of train.pbtxt show.
std::string WithTraining(const std::string& state, const Recipe& recipe) {
  Json json = Json::parse(state);
  json["train"] = recipe.text;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// How often a run looks whether its directory is still there, in seconds.
constexpr double kLookInterval = 1;

}  // namespace

// The initial state of a run, as recorded in run.json and its checkpoints.
absl::StatusOr<std::string> TrainRun::Impl::State() const {
  PLUMB_ASSIGN_OR_RETURN(const std::string norms, TextOf(plumb_model_norms, model.get()));
  const Json state = {{"data", data->name()},          {"data_hash", data->data_hash()},
                      {"seed", fields().seed()},       {"dtype", DTypeOf(recipe)},
                      {"plugins", Json::parse(norms)}, {"plumb", plumb_version()},
                      {"threads", info.threads},       {"matmul", matmul}};
  // The name of a file need not be UTF-8.
  return state.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status TrainRun::Impl::CreateModel(const Spec& spec) {
  PLUMB_ASSIGN_OR_RETURN(model,
                         MakeHandle<ModelHandle>(plumb_model_create, runtime, spec.handle()));
  PLUMB_ASSIGN_OR_RETURN(model_text, TextOf(plumb_model_text, model.get()));
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::ReadNew(const TrainRequest& request) {
  if (request.model_path.empty()) {
    return absl::InvalidArgumentError("a model is missing: model_path is empty");
  }
  Overrides settings = request.train_overrides;
  if (request.seed.has_value()) settings.emplace_back("seed", absl::StrCat(*request.seed));
  PLUMB_ASSIGN_OR_RETURN(
      recipe, ReadRecipe(request.train_path, settings, launch == nullptr ? 1 : launch->size()));
  info.chosen_units = recipe.chosen_units;
  PLUMB_ASSIGN_OR_RETURN(Spec spec, ReadModel(request.model_path, request.model_overrides));
  PLUMB_ASSIGN_OR_RETURN(Dataset dataset,
                         Dataset::Load(request.data_path, ToDatasetOptions(recipe)));
  data = std::make_unique<Dataset>(std::move(dataset));
  PLUMB_RETURN_IF_ERROR(FitVocabulary(data->tokenizer(), recipe, request.data_path, &spec));
  return CreateModel(spec);
}

absl::Status TrainRun::Impl::OpenNew(HostRuntime* warned, const TrainRequest& request) {
  if (!request.out.empty()) PLUMB_RETURN_IF_ERROR(CheckMayBegin(request.out));
  PLUMB_RETURN_IF_ERROR(WhereAllAreWell(ReadNew(request)));
  PLUMB_RETURN_IF_ERROR(CheckRanksAgree(warned, request));
  PLUMB_RETURN_IF_ERROR(CreateTrainer());
  if (!request.init.empty()) {
    PLUMB_RETURN_IF_ERROR(ReadInitialWeights(warned, request.init));
  }
  PLUMB_RETURN_IF_ERROR(SetProbe(request.probe));
  info.disk = PlanDisk(info.memory, recipe, request.out);
  if (request.out.empty()) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(CheckFits(info.disk, request.out));
  if (request.dry_run) return absl::OkStatus();
  // Nothing is written before all of the above has succeeded. Another process may do the same.
  PLUMB_ASSIGN_OR_RETURN(lock, LockRun(request.out));
  PLUMB_RETURN_IF_ERROR(CheckMayBegin(request.out));
  PLUMB_RETURN_IF_ERROR(RemoveRunTemporaries(request.out));
  // Metrics of a run that was killed before it had a model.pbtxt are nobody's.
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateMetrics(RunMetricsPath(request.out), 0)));
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateProbes(RunProbesPath(request.out), 0)));
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateIncidents(RunIncidentsPath(request.out), 0)));
  PLUMB_ASSIGN_OR_RETURN(const std::string state, State());
  return WriteRunFiles(request.out, model_text, recipe, data->tokenizer(),
                       WithInit(WithProbe(state, probe_options), info.initial));
}

absl::Status TrainRun::Impl::ReadInitialWeights(HostRuntime* warned, const std::string& run) {
  return WithStates([&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(info.initial, InitFromRun(warned, run, trainer->get()));
    return absl::OkStatus();
  });
}

absl::Status TrainRun::Impl::CheckDirectory() const {
  if (lock->Holds(info.out)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(info.out, ": was removed or replaced while the run was training into it"));
}

absl::Status TrainRun::Impl::OpenEvents(const TrainRequest& request) {
  if (step() >= fields().max_steps()) return absl::OkStatus();
  bool wanted = request.tensorboard;
  if (!wanted && request.resume) {
    PLUMB_ASSIGN_OR_RETURN(wanted, HasEventFile(request.out));
  }
  if (!wanted) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(
      events, RunEvents::Open(request.out, model.get(), recipe, step() + 1, SystemSeconds));
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::CreateTrainer() {
  const MemoryLimit limit = ProcessMemoryLimit();
  info.room = {limit.bytes, limit.available, limit.by};
  const plumb_communicator* const ranks = launch == nullptr ? nullptr : launch->communicator();
  const bool validates = launch == nullptr || launch->is_first();
  PLUMB_ASSIGN_OR_RETURN(trainer,
                         RunTrainer::Create(model.get(), data.get(), recipe, validates, ranks));
  info.memory = trainer->memory();
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::SetProbe(const ProbeOptions& options) {
  probe_options = options;
  if (options.every <= 0) probe_options = ProbeOptions();
  return plumb::SetProbe(probe_options, trainer->get());
}

// The figures of the last step, if it was probed: to the file, and into the report.
absl::Status TrainRun::Impl::TakeProbe(bool diverged, StepReport* report) {
  const int64_t every = probe_options.every;
  if (every == 0) return absl::OkStatus();
  if (!diverged && step() != 1 && step() % every != 0) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(report->probe, probe->Take(trainer->get(), diverged));
  return absl::OkStatus();
}

TrainRun::TrainRun() : impl_(std::make_unique<Impl>()) {}
TrainRun::~TrainRun() = default;

absl::StatusOr<std::unique_ptr<TrainRun>> TrainRun::Open(HostRuntime* runtime,
                                                         const TrainRequest& request) {
  return OrOutOfMemory("the parameters, the optimizer state and the training program",
                       [&] { return Impl::Open(runtime, request); });
}

absl::StatusOr<std::unique_ptr<TrainRun>> TrainRun::Impl::Open(HostRuntime* runtime,
                                                               const TrainRequest& request) {
  if (request.resume && request.out.empty()) {
    return absl::InvalidArgumentError("nothing to resume: out, which names the run, is empty");
  }
  if (request.resume && request.dry_run) {
    return absl::InvalidArgumentError("a dry run is one of a new run: resume is set too");
  }
  if (request.tensorboard && request.out.empty()) {
    return absl::InvalidArgumentError(
        "event files need a directory: out, which names the run, is empty");
  }
  auto run = std::unique_ptr<TrainRun>(new TrainRun);
  Impl& impl = *run->impl_;
  impl.runtime = runtime->handle();
  impl.info.threads = runtime->threads();
  impl.matmul = runtime->matmul();
  if (request.launch != nullptr && request.launch->size() > 1) impl.launch = request.launch;
  PLUMB_ASSIGN_OR_RETURN(const bool resumes, impl.ResumesFiles(request));
  if (impl.launch != nullptr && !impl.launch->is_first()) {
    impl.info.out = request.out;
    PLUMB_RETURN_IF_ERROR(impl.OpenFollower(runtime, request, resumes));
    return run;
  }
  PLUMB_RETURN_IF_ERROR(resumes ? impl.OpenExisting(runtime, request)
                                : impl.OpenNew(runtime, request));
  if (request.resume && !resumes) {
    impl.warnings.push_back(
        absl::StrCat(request.out, ": holds no run yet, so the run starts from its beginning"));
  }
  for (const std::string& warning : impl.warnings) runtime->Warn(warning);
  auto of_model = Sized<plumb_model_info>();
  plumb_model_get_info(impl.model.get(), &of_model);
  TrainInfo& info = impl.info;
  PLUMB_ASSIGN_OR_RETURN(info.model_name, NameOf(impl.model_text));
  info.out = request.out;
  info.data = DescribeData(*impl.data);
  info.parameters = of_model.parameters;
  info.first_step = impl.step();
  info.max_steps = impl.fields().max_steps();
  info.seed = impl.fields().seed();
  info.dtype = DTypeOf(impl.recipe);
  info.context_length = of_model.context_length;
  if (impl.data->format() == DatasetOptions::Format::kDocuments) {
    info.cropped_documents = impl.data->num_cropped(Split::kTrain, info.context_length);
  }
  info.probe_every = impl.probe_options.every;
  const bool writes = !request.out.empty() && !request.dry_run;
  impl.probe = std::make_unique<RunProbe>(writes ? RunProbesPath(request.out) : "");
  if (writes) {
    PLUMB_ASSIGN_OR_RETURN(MetricsWriter metrics, MetricsWriter::Open(RunMetricsPath(request.out)));
    impl.metrics = std::make_unique<MetricsWriter>(std::move(metrics));
    impl.incident_log = std::make_unique<IncidentLog>(RunIncidentsPath(request.out));
    PLUMB_RETURN_IF_ERROR(impl.OpenEvents(request));
  }
  if (impl.checkpoint_step >= 0 && !request.train_overrides.empty()) {
    // The checkpoint says what train.pbtxt says now: what was set is not an edit.
    impl.checkpoint_step = -1;
    PLUMB_RETURN_IF_ERROR(run->SaveCheckpoint().status());
  }
  if (impl.fields().on_divergence() == v1::Train::STEP_BACK && impl.metrics != nullptr &&
      impl.incidents.last_good < 0) {
    // Whatever happens, there is something to return to.
    PLUMB_RETURN_IF_ERROR(run->SaveCheckpoint().status());
  }
  return run;
}

const TrainInfo& TrainRun::info() const { return impl_->info; }
int64_t TrainRun::step() const { return impl_->step(); }
IncidentCounts TrainRun::incidents() const { return impl_->incidents.counts; }
bool TrainRun::done() const { return step() >= impl_->fields().max_steps(); }

void TrainRun::StartProfile() { impl_->trainer->StartProfile(); }
Profile TrainRun::profile() const { return impl_->trainer->profile(); }

absl::StatusOr<plumb_step_info> TrainRun::Impl::StepUntilFinite(StepReport* report) {
  for (;;) {
    const Clock::time_point start = Clock::now();
    absl::StatusOr<plumb_step_info> stepped =
        StepTogether(step() + 1 + incidents.batches_skipped, report);
    report->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (absl::IsAborted(stepped.status())) {
      // Its probe is logged too; the error returned is the divergence.
      TakeProbe(/*diverged=*/true, report).IgnoreError();
      PLUMB_RETURN_IF_ERROR(Survive(stepped.status(), /*weights_are_lost=*/false, report));
      continue;
    }
    if (!stepped.ok() || metrics == nullptr || !CheckpointDue(Clock::now())) return stepped;
    // An update can overflow though its gradient was finite; no checkpoint holds that.
    const absl::Status finite = CheckFinite();
    if (finite.ok()) return stepped;
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_trainer_set_steps, trainer->get(), step() - 1));
    PLUMB_RETURN_IF_ERROR(Survive(finite, /*weights_are_lost=*/true, report));
  }
}

absl::StatusOr<StepReport> TrainRun::Step() {
  if (done()) return absl::OutOfRangeError("all steps are done");
  return OrOutOfMemory("a training step", [this] { return impl_->Step(); });
}

absl::StatusOr<StepReport> TrainRun::Impl::Step() {
  StepReport report;
  PLUMB_ASSIGN_OR_RETURN(const plumb_step_info result, StepUntilFinite(&report));
  report.step = result.step;
  report.loss = result.loss;
  report.learning_rate = result.learning_rate;
  report.grad_norm = result.gradient_norm;
  report.tokens = result.tokens;
  PLUMB_RETURN_IF_ERROR(TakeProbe(/*diverged=*/false, &report));
  PLUMB_RETURN_IF_ERROR(NoteSpike(&report));
  if (fields().eval_interval() > 0 && trainer->validates() && Due(fields().eval_interval())) {
    PLUMB_ASSIGN_OR_RETURN(report.val_loss, trainer->ValidationLoss(fields().eval_batches()));
  }
  if (metrics == nullptr) return report;
  StepMetrics line;
  line.step = report.step;
  line.loss = report.loss;
  line.lr = report.learning_rate;
  line.grad_norm = report.grad_norm;
  line.tokens = report.tokens;
  line.seconds = report.seconds;
  if (report.val_loss.has_value()) line.val_loss = *report.val_loss;
  PLUMB_RETURN_IF_ERROR(metrics->Append(line));
  if (events != nullptr) PLUMB_RETURN_IF_ERROR(events->Add(report));
  const Clock::time_point now = Clock::now();
  if (std::chrono::duration<double>(now - looked_at).count() > kLookInterval) {
    looked_at = now;
    PLUMB_RETURN_IF_ERROR(CheckDirectory());
  }
  if (CheckpointDue(now)) {
    PLUMB_ASSIGN_OR_RETURN(report.checkpoint, SaveCheckpoint());
  }
  return report;
}

absl::StatusOr<std::string> TrainRun::SaveCheckpoint() {
  return OrOutOfMemory("a checkpoint", [this] { return impl_->SaveCheckpoint(); });
}

absl::StatusOr<std::string> TrainRun::Impl::SaveCheckpoint() {
  if (metrics == nullptr) {
    return absl::InvalidArgumentError("a run that writes no files has no checkpoints");
  }
  if (checkpoint_step == step()) return checkpoint_path;
  PLUMB_RETURN_IF_ERROR(CheckFinite());
  JudgeCheckpoint();
  PLUMB_RETURN_IF_ERROR(WriteCheckpointNow());
  return checkpoint_path;
}

absl::Status TrainRun::Impl::WriteCheckpointNow() {
  const Clock::time_point begin = Clock::now();
  PLUMB_RETURN_IF_ERROR(CheckDirectory());
  PLUMB_RETURN_IF_ERROR(metrics->Sync());
  PLUMB_RETURN_IF_ERROR(probe->Sync());
  PLUMB_RETURN_IF_ERROR(incident_log->Sync());
  if (events != nullptr) PLUMB_RETURN_IF_ERROR(events->Sync());
  const std::vector<TensorToWrite> model_tensors = StateTensors(trainer->get(), PLUMB_STATE_MODEL);
  const std::vector<TensorToWrite> optimizer = StateTensors(trainer->get(), PLUMB_STATE_OPTIMIZER);
  PLUMB_ASSIGN_OR_RETURN(const std::string state, State());
  CheckpointContents contents;
  contents.step = step();
  contents.last_good = incidents.last_good;
  contents.model = model_tensors;
  contents.optimizer = optimizer;
  contents.around = [this](const std::string& directory, CheckpointContents::Write write) {
    return WriteStates(directory, write);
  };
  contents.state = WithIncidents(WithTraining(state, recipe), incidents);
  contents.metadata = {{"plumb", plumb_version()},
                       {"model", model_text},
                       {"data_hash", data->data_hash()},
                       {"seed", absl::StrCat(fields().seed())}};
  PLUMB_RETURN_IF_ERROR(WriteCheckpoint(info.out, contents, fields().keep_checkpoints()));
  checkpoint_path = CheckpointPath(info.out, step());
  checkpoint_step = step();
  saved_at = Clock::now();
  save_seconds = std::chrono::duration<double>(saved_at - begin).count();
  return absl::OkStatus();
}

absl::StatusOr<double> TrainRun::ValidationLoss() {
  if (!impl_->trainer->validates()) {
    return absl::InvalidArgumentError("nothing is held out; data.val_fraction says how much");
  }
  return OrOutOfMemory("the validation program",
                       [&] { return impl_->trainer->ValidationLoss(/*max_batches=*/0); });
}

}  // namespace plumb
