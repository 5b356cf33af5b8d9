// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/run_model.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/import_json.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_plugins.h"

namespace plumb {
namespace {

// Opens the file with the average of the weights.
absl::StatusOr<SafetensorsFile> OpenAverage(const Checkpoint& checkpoint) {
  PLUMB_ASSIGN_OR_RETURN(SafetensorsFile file, OpenCheckpointOptimizer(checkpoint));
  for (const TensorEntry& tensor : file.tensors()) {
    if (absl::StartsWith(tensor.name, "ema.")) return file;
  }
  return absl::NotFoundError(absl::StrCat(
      file.path(), ": holds no average of the weights: ema_decay was not set in the recipe"));
}

// Warns if model.pbtxt or a norm is not the one that the weights were trained with.
absl::Status WarnOfChanges(HostRuntime* runtime, const RunAndCheckpoint& where,
                           const SafetensorsFile& weights, const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ToStatus(model.Text()));
  const auto then = weights.metadata().find("model");
  if (then != weights.metadata().end()) {
    PLUMB_ASSIGN_OR_RETURN(const std::string edits,
                           ModelEdits(runtime, then->second, weights.path(), text));
    if (!edits.empty()) {
      runtime->Warn(absl::StrCat(
          where.checkpoint, ": was trained as another model than its run describes now", edits));
    }
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string json, ReadFile(RunJsonPath(where.run), kMaxStateBytes));
  const absl::StatusOr<RunPlugins> recorded = PluginsIn(json);
  if (!recorded.ok()) {
    return Annotate(recorded.status(), absl::StrCat(RunJsonPath(where.run), ": "));
  }
  PLUMB_ASSIGN_OR_RETURN(const RunPlugins now, GetPlugins(runtime, model));
  for (const auto& [id, record] : now) {
    const auto before = recorded->find(id);
    if (before == recorded->end() || before->second.hash == record.hash) continue;
    runtime->Warn(absl::StrCat(where.run, ": the norm ", id,
                               " is not the one that it was trained with: ", record.path,
                               " has SHA-256 ", record.hash.substr(0, 16), ", and had ",
                               before->second.hash.substr(0, 16)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunAndCheckpoint> LocateRun(const std::string& path) {
  if (FileExists(JoinPath(path, "state.json"))) {
    return RunAndCheckpoint{JoinPath(path, "../.."), path};
  }
  if (!IsRunDirectory(path)) {
    return NoRun(
        path, absl::StrCat(path, ": is neither a run nor a checkpoint; plumb train makes a run"));
  }
  if (IsImportedRun(path)) return RunAndCheckpoint{path, ""};
  PLUMB_ASSIGN_OR_RETURN(std::string checkpoint, FindLatestCheckpoint(path));
  return RunAndCheckpoint{path, std::move(checkpoint)};
}

absl::StatusOr<int64_t> MapRunWeights(HostRuntime* runtime, const RunAndCheckpoint& where,
                                      bool average, api::Model* model) {
  if (where.checkpoint.empty()) {
    if (average) {
      return absl::NotFoundError(
          absl::StrCat(where.run, ": was imported, and has no average of the weights"));
    }
    PLUMB_RETURN_IF_ERROR(
        OrOutOfMemory("the weights", [&] { return MapImportedWeights(where.run, model); }));
    return 0;
  }
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(where.checkpoint));
  // Checked completely before mapping, since the weights stay in the file.
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile weights,
                         average ? OpenAverage(checkpoint) : OpenCheckpointModel(checkpoint));
  PLUMB_RETURN_IF_ERROR(WarnOfChanges(runtime, where, weights, *model));
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the weights", [&] { return model->Map(weights.path()); }));
  return checkpoint.step;
}

absl::StatusOr<std::string> FullText(HostRuntime* runtime, const api::Spec& spec) {
  PLUMB_ASSIGN_OR_RETURN(const api::Model model,
                         ToStatus(api::Model::Create(runtime->api(), spec)));
  return ToStatus(model.Text());
}

absl::StatusOr<std::string> ModelEdits(HostRuntime* runtime, const std::string& then,
                                       const std::string& place, const std::string& now) {
  if (then.empty() || then == now) return std::string();
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ToStatus(api::Spec::FromText(then, place)));
  PLUMB_ASSIGN_OR_RETURN(const std::string whole, FullText(runtime, spec));
  runtime->ForgetWarningsAbout(place);
  return TextDifference(whole, now);
}

absl::StatusOr<RunModel> OpenRunModel(HostRuntime* runtime, const std::string& path, bool average) {
  PLUMB_ASSIGN_OR_RETURN(const RunAndCheckpoint where, LocateRun(path));
  const std::string model_path = RunModelPath(where.run);
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ReadSpec(model_path));
  PLUMB_ASSIGN_OR_RETURN(std::string text, ToStatus(spec.Text()));
  absl::StatusOr<api::Model> created = CreateModel(runtime, spec);
  if (!created.ok()) return NameMissingPlugins(runtime, where.run, created.status());
  api::Model model = *std::move(created);
  runtime->ForgetWarningsAbout(model_path);  // users saw them when the model was made
  PLUMB_ASSIGN_OR_RETURN(const int64_t step, MapRunWeights(runtime, where, average, &model));
  return RunModel{where.run, where.checkpoint, step, std::move(text), std::move(model)};
}

}  // namespace plumb
