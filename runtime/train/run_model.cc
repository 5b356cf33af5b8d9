// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/run_model.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/import_json.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_plugins.h"

namespace plumb {
namespace {

// Returns the path of the checkpoint's weights after checking its size and hash.
absl::StatusOr<std::string> CheckedModelPath(const Checkpoint& checkpoint) {
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenCheckpointModel(checkpoint));
  return file.path();
}

// Returns the path of the file with the average of the weights, after the same checks.
absl::StatusOr<std::string> CheckedAveragePath(const Checkpoint& checkpoint) {
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenCheckpointOptimizer(checkpoint));
  for (const TensorEntry& tensor : file.tensors()) {
    if (absl::StartsWith(tensor.name, "ema.")) return file.path();
  }
  return absl::NotFoundError(absl::StrCat(
      file.path(), ": holds no average of the weights: ema_decay was not set in the recipe"));
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

absl::StatusOr<int64_t> MapRunWeights(const RunAndCheckpoint& where, bool average,
                                      api::Model* model) {
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
  PLUMB_ASSIGN_OR_RETURN(const std::string path,
                         average ? CheckedAveragePath(checkpoint) : CheckedModelPath(checkpoint));
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the weights", [&] { return model->Map(path); }));
  return checkpoint.step;
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
  PLUMB_ASSIGN_OR_RETURN(const int64_t step, MapRunWeights(where, average, &model));
  return RunModel{where.run, where.checkpoint, step, std::move(text), std::move(model)};
}

}  // namespace plumb
