// SPDX-License-Identifier: Apache-2.0
// Model of a run with its weights: from its newest checkpoint, from a given checkpoint, or from an
// import. A value.
#ifndef PLUMB_RUNTIME_TRAIN_RUN_MODEL_H_
#define PLUMB_RUNTIME_TRAIN_RUN_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"

namespace plumb {

// Location of a run's weights. A value.
struct RunAndCheckpoint {
  std::string run;
  std::string checkpoint;  // "": the run was imported
};

// Locates a run directory or one of its checkpoints. Errors: kNotFound if `path` is neither.
absl::StatusOr<RunAndCheckpoint> LocateRun(const std::string& path);

// Maps the weights into `model`, the model of that run. Returns the checkpoint's step, 0 for an
// import. `average` selects the average of the weights. Warns if model.pbtxt or a norm is not the
// one that the checkpoint was trained with. Errors: those of TrainedModel::Open.
absl::StatusOr<int64_t> MapRunWeights(HostRuntime* runtime, const RunAndCheckpoint& where,
                                      bool average, api::Model* model);

// Returns the whole text of a model, with what it takes from files of placements.
absl::StatusOr<std::string> FullText(HostRuntime* runtime, const api::Spec& spec);
// Returns the lines in which the text that a checkpoint was trained with, "" for none, differs from
// FullText `now`; "" if they say the same. `place` stands for the checkpoint in errors.
absl::StatusOr<std::string> ModelEdits(HostRuntime* runtime, const std::string& then,
                                       const std::string& place, const std::string& now);

struct RunModel {
  std::string run;
  std::string checkpoint;  // "": the run was imported
  int64_t step = 0;        // step of the checkpoint; 0 for an import
  std::string text;        // content of model.pbtxt
  api::Model model;
};

// Opens the model of a run with its weights. Errors: those of TrainedModel::Open.
absl::StatusOr<RunModel> OpenRunModel(HostRuntime* runtime, const std::string& path, bool average);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_RUN_MODEL_H_
