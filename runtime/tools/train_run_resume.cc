// TrainRun::Open of a run that is there: what it may be resumed with, and from what.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/tools/model_for_data.h"
#include "runtime/tools/text_difference.h"
#include "runtime/tools/train_run_impl.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

}  // namespace

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
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateIncidents(RunIncidentsPath(request.out),
                                                    session->step() + session->batches_skipped())));
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
  absl::StatusOr<IncidentState> then = IncidentsOf(checkpoint.state);
  if (!then.ok()) {
    return Annotate(then.status(), absl::StrCat(JoinPath(*path, "state.json"), ": "));
  }
  {
    // Unmapped before the next one: pages that were read count as memory of this process.
    PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile model, OpenCheckpointModel(checkpoint));
    const auto text = model.metadata().find("model");
    PLUMB_RETURN_IF_ERROR(CheckEdits(runtime, request, checkpoint,
                                     text == model.metadata().end() ? "" : text->second));
  }
  PLUMB_RETURN_IF_ERROR(ReadTensors(checkpoint));
  incidents = *std::move(then);
  ApplyIncidents(checkpoint.step);
  checkpoint_step = checkpoint.step;
  checkpoint_path = *path;
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::ReadTensors(const Checkpoint& checkpoint) {
  {
    // Unmapped before the next one: pages that were read count as memory of this process.
    PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile model, OpenCheckpointModel(checkpoint));
    PLUMB_RETURN_IF_ERROR(session->parameters().Read(model));
  }
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile optimizer, OpenCheckpointOptimizer(checkpoint));
  return session->optimizer().Read(optimizer);
}

}  // namespace plumb
