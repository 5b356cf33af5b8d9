// SPDX-License-Identifier: Apache-2.0
// Export of models and runs as a Python module for PyTorch. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_EXPORT_PYTORCH_H_
#define PLUMB_RUNTIME_CONVERT_EXPORT_PYTORCH_H_

#include <string>

#include "absl/status/status.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"

namespace plumb {

struct PyTorchRequest {
  std::string source;    // a model file, a run, or one of its checkpoints
  Overrides settings;    // of the model's fields; for a model file only
  std::string out;       // new, or an empty directory
  bool average = false;  // exports the average of a run's weights (ema_decay)
};

// Writes model.py and model.safetensors, completely or not at all. The weights of a model file are
// drawn as `plumb train` draws them with seed 1. Errors: kUnimplemented with the name of a part of
// the model that the code does not cover.
absl::Status ExportPyTorch(HostRuntime* runtime, const PyTorchRequest& request);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_EXPORT_PYTORCH_H_
