#include "runtime/tools/train.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/tools/describe_data.h"
#include "runtime/tools/model_for_data.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_room.h"
#include "runtime/tools/train_run_impl.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// The initial state of a run, as recorded in run.json and its checkpoints.
std::string StateOf(const ModelContext& context, const TrainSpec& spec, const Dataset& data,
                    int threads, const std::string& matmul) {
  Json plugins = Json::object();
  for (const auto& block : context.model.layers) {
    const auto add = [&plugins](const NormBinding& norm) {
      plugins[norm.plugin->id()] = norm.plugin->version();
    };
    if (block->norm.has_value()) add(*block->norm);
    for (const auto& [slot, norm] : block->slots) add(norm);
  }
  const Json state = {{"data", data.name()}, {"data_hash", data.data_hash()},
                      {"seed", spec.seed},   {"dtype", DTypeName(spec.dtype)},
                      {"plugins", plugins},  {"plumb", PlumbVersion()},
                      {"threads", threads},  {"matmul", matmul}};
  // The name of a file need not be UTF-8.
  return state.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The state of a checkpoint says how it was trained, so that edits of train.pbtxt show.
std::string WithTraining(const std::string& state, const TrainSpec& spec) {
  Json json = Json::parse(state);
  json["train"] = spec.ToText();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// How often a run looks whether its directory is still there, in seconds.
constexpr double kLookInterval = 1;

}  // namespace

absl::Status TrainRun::Impl::OpenNew(Runtime::Impl* runtime, const TrainRequest& request) {
  if (request.model_path.empty()) {
    return absl::InvalidArgumentError("a model is missing: model_path is empty");
  }
  if (!request.out.empty()) PLUMB_RETURN_IF_ERROR(CheckMayBegin(request.out));
  std::string train_text;
  if (!request.train_path.empty()) {
    PLUMB_ASSIGN_OR_RETURN(train_text, ReadFile(request.train_path, kMaxTextBytes));
  }
  PLUMB_ASSIGN_OR_RETURN(spec,
                         ParseTrainSpec(train_text, request.train_path, request.train_overrides));
  if (request.seed.has_value()) spec.seed = *request.seed;
  PLUMB_ASSIGN_OR_RETURN(ModelSpec model, ReadModel(request.model_path, request.model_overrides));
  PLUMB_ASSIGN_OR_RETURN(Dataset dataset, Dataset::Load(request.data_path, ToDatasetOptions(spec)));
  data = std::make_unique<Dataset>(std::move(dataset));
  PLUMB_RETURN_IF_ERROR(FitVocabulary(data->tokenizer(), request.data_path, &model));
  PLUMB_ASSIGN_OR_RETURN(context, runtime->MakeContext(model));
  PLUMB_RETURN_IF_ERROR(CreateSessions());
  PLUMB_RETURN_IF_ERROR(SetProbe(request.probe));
  info.disk = PlanDisk(session->planned_memory(), spec, request.out);
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
  return WriteRunFiles(
      request.out, context->model.self_contained_text, spec, data->tokenizer(),
      WithProbe(StateOf(*context, spec, *data, info.threads, matmul), probe_options));
}

absl::Status TrainRun::Impl::CheckDirectory() const {
  if (lock->Holds(info.out)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(info.out, ": was removed or replaced while the run was training into it"));
}

absl::Status TrainRun::Impl::OpenEvents(const TrainRequest& request) {
  if (session->step() >= spec.max_steps) return absl::OkStatus();
  bool wanted = request.tensorboard;
  if (!wanted && request.resume) {
    PLUMB_ASSIGN_OR_RETURN(wanted, HasEventFile(request.out));
  }
  if (!wanted) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(events, RunEvents::Open(request.out, context->model, spec,
                                                 session->step() + 1, SystemSeconds));
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::CreateSessions() {
  const MemoryLimit limit = ProcessMemoryLimit();
  info.room = {limit.bytes, limit.available, limit.by};
  PLUMB_ASSIGN_OR_RETURN(session,
                         TrainSession::Create(context.get(), data.get(), spec, info.threads));
  TrainMemory memory = session->planned_memory();
  if (data->has_targets(Split::kValidation)) {
    PLUMB_ASSIGN_OR_RETURN(validation,
                           EvalSession::Create(context.get(), &session->weights(), data.get(),
                                               Split::kValidation, spec.batch_size, info.threads));
    PLUMB_ASSIGN_OR_RETURN(memory.validation, validation->Prepare());
    PLUMB_RETURN_IF_ERROR(CheckFits(memory, spec, limit));
  }
  info.memory = ToPublic(memory, spec, session->max_seq());
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::SetProbe(const ProbeOptions& options) {
  probe_options = options;
  if (options.every <= 0) probe_options = ProbeOptions();
  const absl::Status status = session->SetProbe(probe_options.every, probe_options.points);
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; plumb explain MODEL --stage probes lists them"));
}

// The figures of the session's last step, if it was probed: to the file, and into the report.
absl::Status TrainRun::Impl::TakeProbe(StepReport* report) {
  if (session->probe() == nullptr) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(report->probe, probe->Take(*session->probe()));
  return absl::OkStatus();
}

TrainRun::TrainRun() : impl_(std::make_unique<Impl>()) {}
TrainRun::~TrainRun() = default;

absl::StatusOr<std::unique_ptr<TrainRun>> TrainRun::Open(Runtime* runtime,
                                                         const TrainRequest& request) {
  return OrOutOfMemory("the parameters, the optimizer state and the training program",
                       [&] { return Impl::Open(runtime, request); });
}

absl::StatusOr<std::unique_ptr<TrainRun>> TrainRun::Impl::Open(Runtime* runtime,
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
  impl.info.threads = runtime->threads();
  impl.matmul = runtime->matmul();
  PLUMB_RETURN_IF_ERROR(request.resume ? impl.OpenExisting(&runtime->impl(), request)
                                       : impl.OpenNew(&runtime->impl(), request));
  for (const std::string& warning : impl.context->model.warnings) runtime->impl().Warn(warning);
  for (const std::string& warning : impl.warnings) runtime->impl().Warn(warning);
  TrainInfo& info = impl.info;
  info.model_name = impl.context->model.name;
  info.out = request.out;
  info.data = DescribeData(*impl.data);
  info.parameters = impl.session->parameters().layout().num_parameters();
  info.first_step = impl.session->step();
  info.max_steps = impl.spec.max_steps;
  info.seed = impl.spec.seed;
  info.dtype = DTypeName(impl.spec.dtype);
  const GemmPolicy& gemm = runtime->impl().gemm;
  if (impl.spec.dtype == DType::kBF16 && !gemm.MultipliesBf16()) {
    runtime->impl().Warn(absl::StrCat(
        "bf16 saves memory here and no arithmetic: it is widened to f32 for every product (",
        gemm.Bf16Reason(), ")"));
  }
  info.context_length = impl.context->model.dims.context_length;
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
  if (request.resume && !request.train_overrides.empty()) {
    // The checkpoint says what train.pbtxt says now: what was set is not an edit.
    impl.checkpoint_step = -1;
    PLUMB_RETURN_IF_ERROR(run->SaveCheckpoint().status());
  }
  if (impl.spec.on_divergence == OnDivergence::kStepBack && impl.metrics != nullptr &&
      impl.incidents.last_good < 0) {
    // Whatever happens, there is something to return to.
    PLUMB_RETURN_IF_ERROR(run->SaveCheckpoint().status());
  }
  return run;
}

const TrainInfo& TrainRun::info() const { return impl_->info; }
int64_t TrainRun::step() const { return impl_->session->step(); }
IncidentCounts TrainRun::incidents() const { return impl_->incidents.counts; }
bool TrainRun::done() const { return step() >= impl_->spec.max_steps; }

void TrainRun::StartProfile() { impl_->session->SetProfile(&impl_->profile); }
Profile TrainRun::profile() const { return ToPublic(impl_->profile); }

absl::StatusOr<StepResult> TrainRun::Impl::StepUntilFinite(StepReport* report) {
  for (;;) {
    const Clock::time_point start = Clock::now();
    absl::StatusOr<StepResult> stepped = session->Step();
    report->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (absl::IsAborted(stepped.status())) {
      // Its probe is logged too; the error returned is the divergence.
      TakeProbe(report).IgnoreError();
      PLUMB_RETURN_IF_ERROR(Survive(stepped.status(), /*weights_are_lost=*/false, report));
      continue;
    }
    if (!stepped.ok() || metrics == nullptr || !CheckpointDue(Clock::now())) return stepped;
    // An update can overflow though its gradient was finite; no checkpoint holds that.
    const absl::Status finite = session->CheckFinite();
    if (finite.ok()) return stepped;
    session->ResumeAt(session->step() - 1);
    PLUMB_RETURN_IF_ERROR(Survive(finite, /*weights_are_lost=*/true, report));
  }
}

absl::StatusOr<StepReport> TrainRun::Step() {
  if (done()) return absl::OutOfRangeError("all steps are done");
  return OrOutOfMemory("a training step", [this] { return impl_->Step(); });
}

absl::StatusOr<StepReport> TrainRun::Impl::Step() {
  StepReport report;
  PLUMB_ASSIGN_OR_RETURN(const StepResult result, StepUntilFinite(&report));
  report.step = result.step;
  report.loss = result.loss;
  report.learning_rate = result.learning_rate;
  report.grad_norm = result.grad_norm;
  report.tokens = result.tokens;
  PLUMB_RETURN_IF_ERROR(TakeProbe(&report));
  PLUMB_RETURN_IF_ERROR(NoteSpike(&report));
  if (spec.eval_interval > 0 && validation != nullptr && Due(spec.eval_interval)) {
    PLUMB_ASSIGN_OR_RETURN(const EvalResult eval, validation->Run(spec.eval_batches));
    report.val_loss = eval.loss;
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
  if (checkpoint_step == session->step()) return checkpoint_path;
  PLUMB_RETURN_IF_ERROR(session->CheckFinite());
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
  const std::vector<TensorToWrite> model = session->parameters().Tensors();
  const std::vector<TensorToWrite> optimizer = session->optimizer().Tensors();
  CheckpointContents contents;
  contents.step = session->step();
  contents.last_good = incidents.last_good;
  contents.model = model;
  contents.optimizer = optimizer;
  contents.state = WithIncidents(
      WithTraining(StateOf(*context, spec, *data, info.threads, matmul), spec), incidents);
  contents.metadata = {{"plumb", PlumbVersion()},
                       {"model", context->model.self_contained_text},
                       {"data_hash", data->data_hash()},
                       {"seed", absl::StrCat(spec.seed)}};
  PLUMB_RETURN_IF_ERROR(
      WriteCheckpoint(info.out, contents, static_cast<int>(spec.keep_checkpoints)));
  checkpoint_path = CheckpointPath(info.out, session->step());
  checkpoint_step = session->step();
  saved_at = Clock::now();
  save_seconds = std::chrono::duration<double>(saved_at - begin).count();
  return absl::OkStatus();
}

absl::StatusOr<double> TrainRun::ValidationLoss() {
  if (impl_->validation == nullptr) {
    return absl::InvalidArgumentError("nothing is held out; data.val_fraction says how much");
  }
  PLUMB_ASSIGN_OR_RETURN(const EvalResult eval, OrOutOfMemory("the validation program", [&] {
                           return impl_->validation->Run(0);
                         }));
  return eval.loss;
}

}  // namespace plumb
