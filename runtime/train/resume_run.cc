// SPDX-License-Identifier: Apache-2.0
// TrainRun::Open for an existing run: checks of the request, and the state to resume from.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/import_json.h"
#include "runtime/train/resume_rules.h"
#include "runtime/train/run_model.h"
#include "runtime/train/run_plugins.h"
#include "runtime/train/train_run_state.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

}  // namespace

absl::Status TrainRunState::CheckSameModel(const TrainRequest& request,
                                           const Tokenizer& tokenizer) const {
  if (request.model_path.empty()) {
    if (request.model_overrides.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--set model.* cannot change the model of a run that is resumed");
  }
  PLUMB_ASSIGN_OR_RETURN(api::Spec spec, ReadSpec(request.model_path, request.model_overrides));
  PLUMB_RETURN_IF_ERROR(
      FitVocabulary(tokenizer, recipe, request.data_path, request.model_path, &spec));
  PLUMB_ASSIGN_OR_RETURN(const std::string other, FullText(runtime, spec));
  if (other == model_text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      request.model_path, ": is not the model that ", request.out, " was started with (",
      RunModelPath(request.out), "); resume without a model, or start another run"));
}

// Warns if the file differs: a resumed run keeps its own train.pbtxt.
absl::Status TrainRunState::CheckSameTraining(const TrainRequest& request) const {
  if (request.train_path.empty()) return absl::OkStatus();
  Overrides settings = request.train_overrides;
  settings.emplace_back("seed", absl::StrCat(fields().seed()));
  PLUMB_ASSIGN_OR_RETURN(Recipe given, ReadRecipe(request.train_path, settings));
  if (given.fields.units() == 0 && fields().units() > 0) {
    // Units were chosen for the ranks on which the run was started.
    settings.emplace_back("units", absl::StrCat(fields().units()));
    PLUMB_ASSIGN_OR_RETURN(given, ReadRecipe(request.train_path, settings));
  }
  if (given.text != recipe.text) {
    runtime->Warn(
        absl::StrCat(request.train_path, ": differs from ", RunTrainPath(request.out),
                     ", which the run keeps using; --set train.FIELD=VALUE changes single fields"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TrainRunState::ResumesFiles(const TrainRequest& request) const {
  if (!request.resume) return false;
  // Without a model no run can begin; OpenExisting reports what is missing.
  const bool resumes = IsRunDirectory(request.out) || request.model_path.empty();
  return ranks == nullptr ? resumes : ranks->BroadcastFlag(resumes);
}

absl::Status TrainRunState::CheckSameInit(const TrainRequest& request,
                                          const InitSource& source) const {
  if (request.init.empty() || request.init == source.run) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      request.out, ": began with ", source.run.empty() ? "weights of its own" : "the weights of ",
      source.run, ", not with those of ", request.init,
      "; resume it without --init, or choose another --out"));
}

absl::Status TrainRunState::RestartWithoutCheckpoint(const InitSource& source,
                                                     const std::string& init) {
  if (!source.run.empty()) {
    const absl::StatusOr<std::string> now = IdentifyWeights(source.weights);
    if (now.ok() && !init.empty() && *now != init) {
      return absl::InvalidArgumentError(
          absl::StrCat(info.out, ": has no checkpoint yet, and the weights that it began with, ",
                       source.weights, ", have changed since; choose another --out"));
    }
    const absl::Status read = ReadInitialWeights(source.weights);
    if (absl::IsNotFound(read)) {
      return absl::NotFoundError(
          absl::StrCat(info.out, ": has no checkpoint yet, and the weights that it began with, ",
                       source.weights, ", are gone; choose another --out"));
    }
    PLUMB_RETURN_IF_ERROR(read);
    info.initial.run = source.run;
  }
  runtime->Warn(absl::StrCat(
      info.out, ": has no checkpoint yet, so the run starts again from its beginning"));
  return absl::OkStatus();
}

absl::StatusOr<RunIdentity> TrainRunState::ContinueIdentity(const TrainRequest& request,
                                                            RunIdentity then) {
  PLUMB_ASSIGN_OR_RETURN(RunIdentity now, Identify(request, ""));
  // Resuming does not decide these.
  now.Keep(then, {"init", "samples", "before"});
  // CheckEdits and the recipe's own rules decide about the recipe; probes change no number.
  const std::vector<std::string> changes = then.Differences(now, {"recipe", "probes"});
  if (!changes.empty()) {
    const std::string text = absl::StrCat(info.out, ": was trained with other inputs\n  ",
                                          absl::StrJoin(changes, "\n  "));
    if (!request.accept_edits) {
      return absl::InvalidArgumentError(absl::StrCat(
          text, "\nput them back, start another run with another --out (--init ", info.out,
          " begins with its weights), or resume with --accept-edits, which records "
          "the change"));
    }
    runtime->Warn(text);
  }
  then.ContinueAs(now, step());
  return then;
}

absl::Status TrainRunState::OpenExisting(const TrainRequest& request) {
  if (IsRunDirectory(request.out)) {
    PLUMB_ASSIGN_OR_RETURN(lock, LockRun(request.out));
    PLUMB_RETURN_IF_ERROR(RemoveRunTemporaries(request.out));
  }
  if (IsImportedRun(request.out)) {
    return absl::NotFoundError(absl::StrCat(
        request.out, ": was imported, so there is no training to resume; plumb train MODEL --init ",
        request.out, " --out RUN begins with its weights"));
  }
  PLUMB_ASSIGN_OR_RETURN(RunFiles files, ReadRunFiles(request.out, request.train_overrides));
  recipe = std::move(files.recipe);
  PLUMB_ASSIGN_OR_RETURN(const Recipe recorded, ReadRecipe(RunTrainPath(request.out), {}));
  PLUMB_RETURN_IF_ERROR(CheckResumedRecipe(request.out, recorded.fields, fields()));
  if (request.seed.has_value() && *request.seed != fields().seed()) {
    return absl::InvalidArgumentError(absl::StrCat(request.out, ": was started with seed ",
                                                   fields().seed(), ", not ", *request.seed,
                                                   "; drop --seed, or choose another --out"));
  }
  PLUMB_RETURN_IF_ERROR(CheckSameTraining(request));
  const absl::StatusOr<InitSource> source = GetInit(files.initial_state);
  if (!source.ok()) {
    return Annotate(source.status(), absl::StrCat(RunJsonPath(request.out), ": "));
  }
  PLUMB_RETURN_IF_ERROR(CheckSameInit(request, *source));
  if (const absl::Status made = CreateModel(files.model); !made.ok()) {
    return NameMissingPlugins(runtime, request.out, made);
  }
  PLUMB_RETURN_IF_ERROR(CheckSameModel(request, *files.tokenizer));
  if (ranks != nullptr) PLUMB_RETURN_IF_ERROR(SendRunFiles(*files.tokenizer));
  PLUMB_RETURN_IF_ERROR(LoadData(request.data_path, *files.tokenizer));
  if (ranks != nullptr) PLUMB_RETURN_IF_ERROR(ranks->AllOk(absl::OkStatus()));
  PLUMB_RETURN_IF_ERROR(CreateTrainer(request));
  PLUMB_RETURN_IF_ERROR(CheckState(files.initial_state, RunJsonPath(request.out)));
  const absl::StatusOr<std::optional<RunIdentity>> then =
      RunIdentity::FromRunJson(files.initial_state);
  if (!then.ok()) return Annotate(then.status(), absl::StrCat(RunJsonPath(request.out), ": "));
  const absl::StatusOr<std::string> checkpoint = FindLatestCheckpoint(request.out);
  if (!checkpoint.ok() && !absl::IsNotFound(checkpoint.status())) return checkpoint.status();
  PLUMB_RETURN_IF_ERROR(
      checkpoint.ok()
          ? LoadCheckpoint(request, *checkpoint)
          : RestartWithoutCheckpoint(*source, then->has_value() ? (*then)->Get("init") : ""));
  if (step() > fields().max_steps()) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.out, ": ", step(), " steps are done, more than max_steps ",
                     fields().max_steps(), "; raise train.max_steps"));
  }
  absl::StatusOr<ProbeOptions> initial_probe = ParseProbe(files.initial_state);
  if (!initial_probe.ok()) {
    return Annotate(initial_probe.status(), absl::StrCat(RunJsonPath(request.out), ": "));
  }
  PLUMB_RETURN_IF_ERROR(SetProbe(request.probe.every == 0 ? *initial_probe : request.probe));
  PLUMB_ASSIGN_OR_RETURN(const RunPlugins plugins, GetPlugins(runtime, *model));
  std::string run_json = WithPlugins(WithProbe(files.initial_state, probe_options), plugins);
  if (then->has_value()) {
    PLUMB_ASSIGN_OR_RETURN(const RunIdentity identity, ContinueIdentity(request, **then));
    run_json = identity.InRunJson(run_json);
  }
  // The result of a study's run is not that of the steps that follow.
  if (step() < fields().max_steps()) {
    PLUMB_RETURN_IF_ERROR(RemoveTree(RunResultPath(request.out)));
  }
  if (run_json != files.initial_state) {
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(RunJsonPath(request.out), run_json));
  }
  if (!request.train_overrides.empty()) {
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(RunTrainPath(request.out), recipe.text));
  }
  WarnIfFinished(request);
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateProbes(RunProbesPath(request.out), step())));
  PLUMB_RETURN_IF_ERROR(KeepLines(
      TruncateIncidents(RunIncidentsPath(request.out), step() + incidents.batches_skipped)));
  const std::string metrics_path = RunMetricsPath(request.out);
  if (step() > 0 && !FileExists(metrics_path)) {
    runtime->Warn(absl::StrCat(metrics_path, ": is missing; losses up to step ", step(),
                               " are lost, the run is not"));
  }
  return KeepLines(TruncateMetrics(metrics_path, step()));
}

// Warns about unreadable losses; they do not prevent resuming from an intact checkpoint.
absl::Status TrainRunState::KeepLines(absl::StatusOr<std::string> truncated) {
  PLUMB_RETURN_IF_ERROR(truncated.status());
  if (!truncated->empty()) runtime->Warn(*truncated);
  return absl::OkStatus();
}

void TrainRunState::WarnIfFinished(const TrainRequest& request) {
  const int64_t done = step(), end = fields().decay_steps();
  const bool extended =
      std::any_of(request.train_overrides.begin(), request.train_overrides.end(),
                  [](const auto& setting) { return setting.first == "max_steps"; });
  const v1::Schedule::Kind schedule = fields().schedule();
  const bool has_end = schedule == v1::Schedule::LINEAR || schedule == v1::Schedule::COSINE ||
                       schedule == v1::Schedule::WSD;
  if (done == fields().max_steps()) {
    runtime->Warn(absl::StrCat(info.out, ": all of its ", done,
                               " steps are done; --set train.max_steps=N trains on"));
  } else if (trainer->LearningRate() == 0 && done >= fields().warmup_steps()) {
    runtime->Warn(absl::StrCat(
        info.out, ": the schedule ended at step ", end,
        " with a learning rate of 0, so further steps change nothing; --set train.decay_steps=N or "
        "train.min_learning_rate=X continues the training"));
  } else if (extended && has_end && end < fields().max_steps()) {
    runtime->Warn(absl::StrCat(
        info.out, ": the schedule ", end > done ? "ends" : "ended", " at step ", end,
        ", and the steps from there to ", fields().max_steps(), " have its final learning rate, ",
        fields().min_learning_rate(), "; --set train.decay_steps=", fields().max_steps(),
        " makes it end with the run"));
  }
}

// Fails if model.pbtxt or train.pbtxt was edited since the checkpoint, unless edits are accepted
// and change no field of the recipe that may not change.
absl::Status TrainRunState::CheckEdits(const TrainRequest& request, const Checkpoint& checkpoint,
                                       const std::string& model_then) {
  std::string edits;
  const Json state = Json::parse(checkpoint.state, nullptr, /*allow_exceptions=*/false);
  if (state.contains("train") && state["train"].is_string()) {
    const std::string text = state["train"].get<std::string>();
    const std::string file = JoinPath(checkpoint.directory, "state.json");
    PLUMB_ASSIGN_OR_RETURN(const Recipe unchanged, ParseRecipe(text, file, {}));
    PLUMB_RETURN_IF_ERROR(CheckResumedRecipe(info.out, unchanged.fields, fields()));
    PLUMB_ASSIGN_OR_RETURN(const Recipe then, ParseRecipe(text, file, request.train_overrides));
    const std::string difference = TextDifference(then.text, recipe.text);
    if (!difference.empty()) absl::StrAppend(&edits, "\n", RunTrainPath(info.out), difference);
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string difference,
                         ModelEdits(runtime, model_then, checkpoint.directory, model_text));
  if (!difference.empty()) absl::StrAppend(&edits, "\n", RunModelPath(info.out), difference);
  if (edits.empty()) return absl::OkStatus();
  edits =
      absl::StrCat(info.out, ": was edited since its checkpoint of step ", checkpoint.step, edits);
  if (request.accept_edits) {
    runtime->Warn(edits);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(edits, "\nrestore the file, or resume with --accept-edits"));
}

// Fails unless `text`, a State() read from `file`, has the data and the seed of this run.
absl::Status TrainRunState::CheckState(const std::string& text, const std::string& file) {
  const Json state = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("data_hash") || !state["data_hash"].is_string()) {
    return absl::DataLossError(absl::StrCat(file, ": has no data_hash"));
  }
  const std::string data_hash = state["data_hash"].get<std::string>();
  if (data_hash != data->data_hash()) {
    return absl::InvalidArgumentError(absl::StrCat(
        data->name(), ": is not the data that ", info.out, " was started with (hash ",
        data->data_hash(), ", not ", data_hash, "); resume with that data, or start another run"));
  }
  // With another seed the run would continue with batches other than those of its completed steps.
  if (state.contains("seed") && state["seed"] != Json(fields().seed())) {
    return absl::InvalidArgumentError(absl::StrCat(info.out, ": was started with seed ",
                                                   state["seed"].dump(), ", not ", fields().seed(),
                                                   "; put the seed back, or start another run"));
  }
  // Runs written before this was recorded have no such field.
  if (state.contains("matmul") && state["matmul"] != Json(runtime->matmul())) {
    runtime->Warn(
        absl::StrCat(file, ": products were computed by ", state["matmul"].dump(),
                     ", and are now by \"", runtime->matmul(),
                     "\": losses will not be equal to the bit to those of an uninterrupted run"));
  }
  return absl::OkStatus();
}

absl::Status TrainRunState::LoadCheckpoint(const TrainRequest& request, const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(path));
  PLUMB_RETURN_IF_ERROR(CheckState(checkpoint.state, JoinPath(path, "state.json")));
  absl::StatusOr<IncidentState> then = ParseIncidents(checkpoint.state);
  if (!then.ok()) {
    return Annotate(then.status(), absl::StrCat(JoinPath(path, "state.json"), ": "));
  }
  {
    // Unmapped before the next file is read, since pages that were read count as memory of this
    // process.
    PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile weights, OpenCheckpointModel(checkpoint));
    const auto text = weights.metadata().find("model");
    PLUMB_RETURN_IF_ERROR(
        CheckEdits(request, checkpoint, text == weights.metadata().end() ? "" : text->second));
  }
  incidents = *std::move(then);
  const auto read = [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(ReadTensors(checkpoint));
    return ToStatus(trainer->SetSteps(checkpoint.step));
  };
  PLUMB_RETURN_IF_ERROR(WithStates(read));
  checkpoint_step = checkpoint.step;
  checkpoint_path = path;
  return absl::OkStatus();
}

absl::Status TrainRunState::ReadTensors(const Checkpoint& checkpoint) {
  {
    // Unmapped before the next file is read, since pages that were read count as memory of this
    // process.
    PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile weights, OpenCheckpointModel(checkpoint));
    PLUMB_RETURN_IF_ERROR(ReadState(weights, &*trainer, api::State::kModel));
  }
  const absl::StatusOr<SafetensorsFile> optimizer = OpenCheckpointOptimizer(checkpoint);
  if (absl::IsNotFound(optimizer.status())) {
    return absl::DataLossError(absl::StrCat(optimizer.status().message(),
                                            "; plumb train --init begins a run with its weights"));
  }
  PLUMB_RETURN_IF_ERROR(optimizer.status());
  return ReadState(*optimizer, &*trainer, api::State::kOptimizer);
}

}  // namespace plumb
