// Weights that training begins with, from another run. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_INIT_FROM_RUN_H_
#define PLUMB_RUNTIME_TOOLS_INIT_FROM_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/tools/host_runtime.h"
#include "runtime/tools/train.h"

namespace plumb {

// Overwrites those of the trainer's weights that `run` (a run, trained or imported, or one of its
// checkpoints) has under the same name with the same shape. Errors: as OpenRunModel;
// kInvalidArgument when there are none.
absl::StatusOr<InitialWeights> InitFromRun(HostRuntime* runtime, const std::string& run,
                                           plumb_trainer* trainer);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_INIT_FROM_RUN_H_
