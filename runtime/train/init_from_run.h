// SPDX-License-Identifier: Apache-2.0
// Initial weights from another run, and their record in run.json. Stateless.
#ifndef PLUMB_RUNTIME_TRAIN_INIT_FROM_RUN_H_
#define PLUMB_RUNTIME_TRAIN_INIT_FROM_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/plumb_api.h"

namespace plumb {

// Initial weights that a run took from another one.
struct InitialWeights {
  std::string run;                 // "": all weights were drawn
  std::string weights;             // absolute path of the checkpoint, or of the imported run
  int64_t taken = 0;               // number of tensors
  std::vector<std::string> drawn;  // new in this model: "layers.6.mlp.norm.weight[768]"
  std::vector<std::string> left;   // tensors of the run that this model does not have
};

// Overwrites those weights of the trainer that `run` (trained or imported, or one of its
// checkpoints) has with the same name and shape. Errors: those of OpenRunModel; kInvalidArgument if
// there are none.
absl::StatusOr<InitialWeights> InitFromRun(HostRuntime* runtime, const std::string& run,
                                           api::Trainer* trainer);

// Source of the weights that a run began with.
struct InitSource {
  std::string run;      // path given by the user; "": all weights were drawn
  std::string weights;  // absolute path of the checkpoint, or of the imported run
};

// Adds the source to the object of run.json. Returns `json` unchanged if all weights were drawn.
std::string WithInit(const std::string& json, const InitialWeights& initial);
// Reads the source from the object of run.json. Errors: kDataLoss.
absl::StatusOr<InitSource> GetInit(const std::string& json);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_INIT_FROM_RUN_H_
