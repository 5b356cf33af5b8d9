// SPDX-License-Identifier: Apache-2.0
// Export of runs as checkpoints of other programs, by the families of import_run.h. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_EXPORT_RUN_H_
#define PLUMB_RUNTIME_CONVERT_EXPORT_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"

namespace plumb {

struct ExportRequest {
  std::string run;       // an imported or trained run, or one of its checkpoints
  std::string out;       // new, or an empty directory
  std::string family;    // name or .pbtxt; "": that of the import that the run is, or began with
  bool average = false;  // exports the average of the weights (ema_decay)
  bool adapter = false;  // exports the adapter alone, in PEFT's layout
};

struct ExportReport {
  std::string family;
  int64_t tensors = 0;  // in the checkpoint
  int64_t bytes = 0;    // size of model.safetensors
};

// Writes config.json, generation_config.json, model.safetensors (f32) and the tokenizer's files,
// completely or not at all. An adapter of the model is merged into the weights, or with `adapter`
// becomes adapter_config.json and adapter_model.safetensors, which are then all files. Errors:
// kInvalidArgument with the reason if the family cannot express the model.
absl::StatusOr<ExportReport> ExportRun(HostRuntime* runtime, const ExportRequest& request);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_EXPORT_RUN_H_
