// SPDX-License-Identifier: Apache-2.0
// Export of models and runs as a Python module for PyTorch. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_EXPORT_PYTORCH_H_
#define PLUMB_RUNTIME_CONVERT_EXPORT_PYTORCH_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"
#include "runtime/convert/export_run.h"

namespace plumb {

// Writes model.py and model.safetensors into the directory `out`, which is new or empty, completely
// or not at all. `recipe` is the text of the recipe whose weight decay and rates parameter_groups()
// has, "": the default; `step` that of the weights. Errors: kUnimplemented with the name of a part
// of the model that the code does not cover.
absl::Status ExportPyTorch(const api::Model& model, const std::string& recipe, int64_t step,
                           const std::string& out);

// Does so for a run and its recipe. Requires: no family, no adapter.
absl::Status ExportRunAsPyTorch(HostRuntime* runtime, const ExportRequest& request);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_EXPORT_PYTORCH_H_
