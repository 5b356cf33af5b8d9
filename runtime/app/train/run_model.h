// SPDX-License-Identifier: Apache-2.0
// The model of a run with its weights: of its newest checkpoint, of one of its checkpoints, or of
// an import. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_RUN_MODEL_H_
#define PLUMB_RUNTIME_APP_TRAIN_RUN_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/model.h"

namespace plumb {

// Where a run's weights are. A value.
struct RunAndCheckpoint {
  std::string run;
  std::string checkpoint;  // "": the run was imported
};

// `path`: a run's directory, or one of its checkpoints. kNotFound if it is neither.
absl::StatusOr<RunAndCheckpoint> LocateRun(const std::string& path);

// Gives `model`, which is the run's, the weights, where they lie. Returns the checkpoint's step, 0
// of an import. `average`: the average of the weights. Errors: as TrainedModel::Open.
absl::StatusOr<int64_t> MapRunWeights(const RunAndCheckpoint& where, bool average,
                                      api::Model* model);

struct RunModel {
  std::string run;
  std::string checkpoint;  // "": the run was imported
  std::string text;        // of model.pbtxt
  api::Model model;
};
absl::StatusOr<RunModel> OpenRunModel(HostRuntime* runtime, const std::string& path, bool average);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_RUN_MODEL_H_
