#include "plumb/train.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/api/describe_data.h"
#include "runtime/api/model_for_data.h"
#include "runtime/api/out_of_memory.h"
#include "runtime/api/run_directory.h"
#include "runtime/api/run_events.h"
#include "runtime/api/run_probe.h"
#include "runtime/api/run_profile.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/api/text_difference.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/evaluate.h"
#include "runtime/session/metrics.h"
#include "runtime/session/train_session.h"

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
  return state.dump();
}

// The state of a checkpoint says how it was trained, so that edits of train.pbtxt show.
std::string WithTraining(const std::string& state, const TrainSpec& spec) {
  Json json = Json::parse(state);
  json["train"] = spec.ToText();
  return json.dump();
}

// Writing checkpoints takes at most a twentieth of the time.
constexpr double kWritesApart = 20;
// How often a run looks whether its directory is still there, in seconds.
constexpr double kLookInterval = 1;

}  // namespace

struct TrainRun::Impl {
  using Clock = std::chrono::steady_clock;

  std::optional<DirectoryLock> lock;
  TrainInfo info;
  TrainSpec spec;
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<TrainSession> session;
  std::unique_ptr<EvalSession> validation;  // null when nothing is held out
  std::unique_ptr<MetricsWriter> metrics;   // null when no files are written
  std::unique_ptr<RunEvents> events;        // null unless requested
  ProbeOptions probe_options;               // every 0: none
  std::unique_ptr<RunProbe> probe;
  StepProfile profile;
  std::string matmul;  // the engines of matrix products
  std::vector<std::string> warnings;
  int64_t checkpoint_step = -1;  // of the newest checkpoint
  std::string checkpoint_path;
  Clock::time_point saved_at = Clock::now();   // or begun
  Clock::time_point looked_at = Clock::now();  // whether the directory is there
  double save_seconds = 0;                     // of the newest checkpoint

  absl::Status OpenNew(Runtime::Impl* runtime, const TrainRequest& request);
  absl::Status OpenExisting(Runtime::Impl* runtime, const TrainRequest& request);
  absl::Status CheckSameTraining(Runtime::Impl* runtime, const TrainRequest& request) const;
  absl::Status CheckSameModel(Runtime::Impl* runtime, const TrainRequest& request,
                              const Tokenizer& tokenizer) const;
  absl::Status CreateSessions();
  absl::Status SetProbe(const ProbeOptions& options);
  absl::Status TakeProbe(StepReport* report);
  absl::Status CheckState(const std::string& text, const std::string& file);
  absl::Status CheckEdits(Runtime::Impl* runtime, const TrainRequest& request,
                          const Checkpoint& checkpoint, const std::string& model_then);
  absl::Status LoadCheckpoint(Runtime::Impl* runtime, const TrainRequest& request);
  absl::Status KeepLines(absl::StatusOr<std::string> truncated);
  absl::Status CheckDirectory() const;
  void WarnOfTheEnd();
  absl::Status OpenEvents(const TrainRequest& request);
  bool Due(int64_t interval) const {
    return session->step() == spec.max_steps || (interval > 0 && session->step() % interval == 0);
  }
  bool CheckpointDue(Clock::time_point now) const {
    const double passed = std::chrono::duration<double>(now - saved_at).count();
    return Due(spec.checkpoint_interval) ||
           (spec.checkpoint_seconds > 0 &&
            passed >= std::max(spec.checkpoint_seconds, kWritesApart * save_seconds));
  }
};

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
  if (request.out.empty()) return absl::OkStatus();
  // Nothing is written before all of the above has succeeded. Another process may do the same.
  PLUMB_ASSIGN_OR_RETURN(lock, LockRun(request.out));
  PLUMB_RETURN_IF_ERROR(CheckMayBegin(request.out));
  PLUMB_RETURN_IF_ERROR(RemoveRunTemporaries(request.out));
  // Metrics of a run that was killed before it had a model.pbtxt are nobody's.
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateMetrics(RunMetricsPath(request.out), 0)));
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateProbes(RunProbesPath(request.out), 0)));
  return WriteRunFiles(
      request.out, context->model.self_contained_text, spec, data->tokenizer(),
      WithProbe(StateOf(*context, spec, *data, info.threads, matmul), probe_options));
}

absl::Status TrainRun::Impl::CheckSameModel(Runtime::Impl* runtime, const TrainRequest& request,
                                            const Tokenizer& tokenizer) const {
  if (request.model_path.empty()) {
    if (request.model_overrides.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--set model.* cannot change the model of a run that is resumed");
  }
  PLUMB_ASSIGN_OR_RETURN(ModelSpec model, ReadModel(request.model_path, request.model_overrides));
  PLUMB_RETURN_IF_ERROR(FitVocabulary(tokenizer, request.data_path, &model));
  PLUMB_ASSIGN_OR_RETURN(const ResolvedModel other,
                         Resolve(model, &runtime->plugins, runtime->resolve));
  if (other.self_contained_text == context->model.self_contained_text) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      request.model_path, ": is not the model that ", request.out, " was started with (",
      RunModelPath(request.out), "); resume without a model, or start another run"));
}

// A resumed run keeps its train.pbtxt: a file that differs is ignored, with a warning.
absl::Status TrainRun::Impl::CheckSameTraining(Runtime::Impl* runtime,
                                               const TrainRequest& request) const {
  if (request.train_path.empty()) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(request.train_path, kMaxTextBytes));
  PLUMB_ASSIGN_OR_RETURN(TrainSpec given,
                         ParseTrainSpec(text, request.train_path, request.train_overrides));
  given.seed = spec.seed;
  if (given.ToText() != spec.ToText()) {
    runtime->warnings.push_back(
        absl::StrCat(request.train_path, ": differs from ", RunTrainPath(request.out),
                     ", which the run keeps using; --set train.FIELD=VALUE changes single fields"));
  }
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::OpenExisting(Runtime::Impl* runtime, const TrainRequest& request) {
  if (IsRunDirectory(request.out)) {
    PLUMB_ASSIGN_OR_RETURN(lock, LockRun(request.out));
    PLUMB_RETURN_IF_ERROR(RemoveRunTemporaries(request.out));
  }
  PLUMB_ASSIGN_OR_RETURN(RunFiles files, ReadRunFiles(request.out, request.train_overrides));
  spec = files.train;
  if (request.seed.has_value() && *request.seed != spec.seed) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.out, ": was started with seed ", spec.seed, ", not ", *request.seed));
  }
  PLUMB_RETURN_IF_ERROR(CheckSameTraining(runtime, request));
  PLUMB_ASSIGN_OR_RETURN(context, runtime->MakeContext(files.model));
  PLUMB_RETURN_IF_ERROR(CheckSameModel(runtime, request, files.tokenizer));
  PLUMB_ASSIGN_OR_RETURN(
      Dataset dataset, Dataset::Load(request.data_path, ToDatasetOptions(spec), &files.tokenizer));
  data = std::make_unique<Dataset>(std::move(dataset));
  PLUMB_RETURN_IF_ERROR(CreateSessions());
  info.out = request.out;
  PLUMB_RETURN_IF_ERROR(CheckState(files.initial_state, RunJsonPath(request.out)));
  PLUMB_RETURN_IF_ERROR(LoadCheckpoint(runtime, request));
  if (session->step() > spec.max_steps) {
    return absl::InvalidArgumentError(absl::StrCat(request.out, ": ", session->step(),
                                                   " steps are done, more than max_steps ",
                                                   spec.max_steps));
  }
  absl::StatusOr<ProbeOptions> initial_probe = ProbeOf(files.initial_state);
  if (!initial_probe.ok()) {
    return Annotate(initial_probe.status(), absl::StrCat(RunJsonPath(request.out), ": "));
  }
  PLUMB_RETURN_IF_ERROR(SetProbe(request.probe.every == 0 ? *initial_probe : request.probe));
  if (!request.train_overrides.empty()) {
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(RunTrainPath(request.out), spec.ToText()));
  }
  if (request.probe.every != 0) {
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(RunJsonPath(request.out),
                                              WithProbe(files.initial_state, probe_options)));
  }
  WarnOfTheEnd();
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateProbes(RunProbesPath(request.out), session->step())));
  const std::string metrics_path = RunMetricsPath(request.out);
  if (session->step() > 0 && !FileExists(metrics_path)) {
    warnings.push_back(absl::StrCat(metrics_path, ": is missing; losses up to step ",
                                    session->step(), " are lost, the run is not"));
  }
  return KeepLines(TruncateMetrics(metrics_path, session->step()));
}

// Losses that cannot be read do not keep a sound checkpoint from being resumed.
absl::Status TrainRun::Impl::KeepLines(absl::StatusOr<std::string> truncated) {
  PLUMB_RETURN_IF_ERROR(truncated.status());
  if (!truncated->empty()) warnings.push_back(*std::move(truncated));
  return absl::OkStatus();
}

void TrainRun::Impl::WarnOfTheEnd() {
  const int64_t done = session->step();
  if (done == spec.max_steps) {
    warnings.push_back(absl::StrCat(info.out, ": all of its ", done,
                                    " steps are done; --set train.max_steps=N trains on"));
  } else if (session->NextLearningRate() == 0 && done >= spec.warmup_steps) {
    warnings.push_back(absl::StrCat(
        info.out, ": the schedule ended at step ", spec.decay_steps,
        " with a learning rate of 0, so further steps change nothing; --set train.decay_steps=N or "
        "train.min_learning_rate=X goes on"));
  }
}

// A run that was edited by hand is not what its checkpoint and its metrics were made with.
absl::Status TrainRun::Impl::CheckEdits(Runtime::Impl* runtime, const TrainRequest& request,
                                        const Checkpoint& checkpoint,
                                        const std::string& model_then) {
  std::string edits;
  const Json state = Json::parse(checkpoint.state, nullptr, /*allow_exceptions=*/false);
  if (state.contains("train") && state["train"].is_string()) {
    PLUMB_ASSIGN_OR_RETURN(
        const TrainSpec then,
        ParseTrainSpec(state["train"].get<std::string>(),
                       JoinPath(checkpoint.directory, "state.json"), request.train_overrides));
    const std::string difference = TextDifference(then.ToText(), spec.ToText());
    if (!difference.empty()) absl::StrAppend(&edits, "\n", RunTrainPath(info.out), difference);
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string model_now,
                         ReadFile(RunModelPath(info.out), kMaxTextBytes));
  if (!model_then.empty() && model_then != model_now) {
    PLUMB_ASSIGN_OR_RETURN(const ModelSpec then,
                           ModelSpec::FromText(model_then, checkpoint.directory));
    PLUMB_ASSIGN_OR_RETURN(const ResolvedModel resolved,
                           Resolve(then, &runtime->plugins, runtime->resolve));
    const std::string difference =
        TextDifference(resolved.self_contained_text, context->model.self_contained_text);
    if (!difference.empty()) absl::StrAppend(&edits, "\n", RunModelPath(info.out), difference);
  }
  if (edits.empty()) return absl::OkStatus();
  edits =
      absl::StrCat(info.out, ": was edited since its checkpoint of step ", checkpoint.step, edits);
  if (request.accept_edits) {
    warnings.push_back(std::move(edits));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(edits, "\nPut it back, or resume with --accept-edits."));
}

absl::Status TrainRun::Impl::CheckDirectory() const {
  if (lock->Holds(info.out)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(info.out, ": was removed or replaced while the run was training into it"));
}

// Whether `text`, a StateOf that was read from `file`, speaks of the data, the seed and the dtype
// of this run.
absl::Status TrainRun::Impl::CheckState(const std::string& text, const std::string& file) {
  const Json state = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("data_hash") || !state["data_hash"].is_string()) {
    return absl::DataLossError(absl::StrCat(file, ": has no data_hash"));
  }
  const std::string data_hash = state["data_hash"].get<std::string>();
  if (data_hash != data->data_hash()) {
    return absl::InvalidArgumentError(absl::StrCat(data->name(), ": is not the data that ",
                                                   info.out, " was started with (hash ",
                                                   data->data_hash(), ", not ", data_hash, ")"));
  }
  // --set train.seed would continue with other batches than those of the steps that are done.
  if (state.contains("seed") && state["seed"] != Json(spec.seed)) {
    return absl::InvalidArgumentError(absl::StrCat(info.out, ": was started with seed ",
                                                   state["seed"].dump(), ", not ", spec.seed));
  }
  // One run is one curve: its losses are comparable from the first to the last.
  const Json initial_dtype =
      state.contains("dtype") ? state["dtype"] : Json(DTypeName(DType::kF32));
  if (initial_dtype != Json(DTypeName(spec.dtype))) {
    return absl::InvalidArgumentError(absl::StrCat(info.out, ": was started with dtype ",
                                                   initial_dtype.dump(), ", not \"",
                                                   DTypeName(spec.dtype), "\""));
  }
  // Runs from before this was recorded say nothing.
  if (state.contains("matmul") && state["matmul"] != Json(matmul)) {
    warnings.push_back(absl::StrCat(
        file, ": products were computed by ", state["matmul"].dump(), ", and are now by \"", matmul,
        "\": losses will not be equal to the bit to those of an uninterrupted run"));
  }
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::LoadCheckpoint(Runtime::Impl* runtime, const TrainRequest& request) {
  absl::StatusOr<std::string> path = FindLatestCheckpoint(info.out);
  if (absl::IsNotFound(path.status())) {
    return absl::NotFoundError(absl::StrCat(
        info.out,
        ": has no checkpoint to resume from, it was stopped before its first; delete it, or "
        "choose another --out, and start without --resume"));
  }
  PLUMB_RETURN_IF_ERROR(path.status());
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(*path));
  PLUMB_RETURN_IF_ERROR(CheckState(checkpoint.state, JoinPath(*path, "state.json")));
  const ParameterLayout& layout = session->parameters().layout();
  const TrainSession::Moments moments = session->moments();
  {
    // Unmapped before the next one: pages that were read count as memory of this process.
    PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile model, OpenCheckpointModel(checkpoint));
    const auto text = model.metadata().find("model");
    PLUMB_RETURN_IF_ERROR(CheckEdits(runtime, request, checkpoint,
                                     text == model.metadata().end() ? "" : text->second));
    PLUMB_RETURN_IF_ERROR(session->parameters().Read(model));
  }
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile optimizer, OpenCheckpointOptimizer(checkpoint));
  PLUMB_RETURN_IF_ERROR(layout.Read("m.", optimizer, moments.m));
  PLUMB_RETURN_IF_ERROR(layout.Read("v.", optimizer, moments.v));
  session->ResumeAt(checkpoint.step);
  checkpoint_step = checkpoint.step;
  checkpoint_path = *path;
  return absl::OkStatus();
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
  PLUMB_ASSIGN_OR_RETURN(session,
                         TrainSession::Create(context.get(), data.get(), spec, info.threads));
  if (!data->has_targets(Split::kValidation)) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<EvalSession>> eval =
      EvalSession::Create(context.get(), &session->weights(), data.get(), Split::kValidation,
                          spec.batch_size, info.threads);
  PLUMB_RETURN_IF_ERROR(eval.status());
  validation = *std::move(eval);
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::SetProbe(const ProbeOptions& options) {
  probe_options = options;
  if (options.every <= 0) probe_options = ProbeOptions();
  PLUMB_RETURN_IF_ERROR(session->SetProbe(probe_options.every, probe_options.points));
  return absl::OkStatus();
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
  if (request.resume && request.out.empty()) {
    return absl::InvalidArgumentError("nothing to resume: out, which names the run, is empty");
  }
  if (request.tensorboard && request.out.empty()) {
    return absl::InvalidArgumentError(
        "event files need a directory: out, which names the run, is empty");
  }
  auto run = std::unique_ptr<TrainRun>(new TrainRun);
  Impl& impl = *run->impl_;
  impl.info.threads = runtime->threads();
  impl.matmul = runtime->matmul();
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory([&] {
    return request.resume ? impl.OpenExisting(&runtime->impl(), request)
                          : impl.OpenNew(&runtime->impl(), request);
  }));
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
  impl.probe = std::make_unique<RunProbe>(request.out.empty() ? "" : RunProbesPath(request.out));
  if (!request.out.empty()) {
    PLUMB_ASSIGN_OR_RETURN(MetricsWriter metrics, MetricsWriter::Open(RunMetricsPath(request.out)));
    impl.metrics = std::make_unique<MetricsWriter>(std::move(metrics));
    PLUMB_RETURN_IF_ERROR(impl.OpenEvents(request));
  }
  if (request.resume && !request.train_overrides.empty()) {
    // The checkpoint says what train.pbtxt says now: what was set is not an edit.
    impl.checkpoint_step = -1;
    PLUMB_RETURN_IF_ERROR(run->SaveCheckpoint().status());
  }
  return run;
}

const TrainInfo& TrainRun::info() const { return impl_->info; }
int64_t TrainRun::step() const { return impl_->session->step(); }
bool TrainRun::done() const { return step() >= impl_->spec.max_steps; }

void TrainRun::StartProfile() { impl_->session->SetProfile(&impl_->profile); }
Profile TrainRun::profile() const { return ToPublic(impl_->profile); }

absl::StatusOr<StepReport> TrainRun::Step() {
  using Clock = Impl::Clock;
  Impl& impl = *impl_;
  if (done()) return absl::OutOfRangeError("all steps are done");
  const Clock::time_point start = Clock::now();
  const absl::StatusOr<StepResult> stepped = OrOutOfMemory([&] { return impl.session->Step(); });
  StepReport report;
  // The probe of a step that diverged is logged too; the error returned is the divergence.
  if (absl::IsAborted(stepped.status())) impl.TakeProbe(&report).IgnoreError();
  PLUMB_ASSIGN_OR_RETURN(const StepResult result, stepped);
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report.step = result.step;
  report.loss = result.loss;
  report.learning_rate = result.learning_rate;
  report.grad_norm = result.grad_norm;
  report.tokens = result.tokens;
  PLUMB_RETURN_IF_ERROR(impl.TakeProbe(&report));
  if (impl.spec.eval_interval > 0 && impl.validation != nullptr &&
      impl.Due(impl.spec.eval_interval)) {
    PLUMB_ASSIGN_OR_RETURN(const EvalResult eval, OrOutOfMemory([&] {
                             return impl.validation->Run(impl.spec.eval_batches);
                           }));
    report.val_loss = eval.loss;
  }
  if (impl.metrics == nullptr) return report;
  StepMetrics line;
  line.step = report.step;
  line.loss = report.loss;
  line.lr = report.learning_rate;
  line.grad_norm = report.grad_norm;
  line.tokens = report.tokens;
  line.seconds = report.seconds;
  if (report.val_loss.has_value()) line.val_loss = *report.val_loss;
  PLUMB_RETURN_IF_ERROR(impl.metrics->Append(line));
  if (impl.events != nullptr) PLUMB_RETURN_IF_ERROR(impl.events->Add(report));
  const Clock::time_point now = Clock::now();
  if (std::chrono::duration<double>(now - impl.looked_at).count() > kLookInterval) {
    impl.looked_at = now;
    PLUMB_RETURN_IF_ERROR(impl.CheckDirectory());
  }
  if (impl.CheckpointDue(now)) {
    PLUMB_ASSIGN_OR_RETURN(report.checkpoint, SaveCheckpoint());
  }
  return report;
}

absl::StatusOr<std::string> TrainRun::SaveCheckpoint() {
  Impl& impl = *impl_;
  if (impl.info.out.empty()) {
    return absl::InvalidArgumentError("a run without a directory has no checkpoints");
  }
  const TrainSession& session = *impl.session;
  if (impl.checkpoint_step == session.step()) return impl.checkpoint_path;
  const Impl::Clock::time_point begin = Impl::Clock::now();
  PLUMB_RETURN_IF_ERROR(impl.CheckDirectory());
  PLUMB_RETURN_IF_ERROR(impl.metrics->Sync());
  PLUMB_RETURN_IF_ERROR(impl.probe->Sync());
  if (impl.events != nullptr) PLUMB_RETURN_IF_ERROR(impl.events->Sync());
  const ParameterLayout& layout = session.parameters().layout();
  const std::vector<TensorToWrite> model = session.parameters().Tensors();
  std::vector<TensorToWrite> optimizer = layout.Tensors("m.", session.first_moments());
  for (TensorToWrite& v : layout.Tensors("v.", session.second_moments())) {
    optimizer.push_back(std::move(v));
  }
  CheckpointContents contents;
  contents.step = session.step();
  contents.model = model;
  contents.optimizer = optimizer;
  contents.state = WithTraining(
      StateOf(*impl.context, impl.spec, *impl.data, impl.info.threads, impl.matmul), impl.spec);
  contents.metadata = {{"plumb", PlumbVersion()},
                       {"model", impl.context->model.self_contained_text},
                       {"data_hash", impl.data->data_hash()},
                       {"seed", absl::StrCat(impl.spec.seed)}};
  PLUMB_RETURN_IF_ERROR(
      WriteCheckpoint(impl.info.out, contents, static_cast<int>(impl.spec.keep_checkpoints)));
  PLUMB_ASSIGN_OR_RETURN(impl.checkpoint_path, FindLatestCheckpoint(impl.info.out));
  impl.checkpoint_step = session.step();
  impl.saved_at = Impl::Clock::now();
  impl.save_seconds = std::chrono::duration<double>(impl.saved_at - begin).count();
  return impl.checkpoint_path;
}

absl::StatusOr<double> TrainRun::ValidationLoss() {
  if (impl_->validation == nullptr) {
    return absl::InvalidArgumentError("nothing is held out; data.val_fraction says how much");
  }
  PLUMB_ASSIGN_OR_RETURN(const EvalResult eval,
                         OrOutOfMemory([&] { return impl_->validation->Run(0); }));
  return eval.loss;
}

}  // namespace plumb
