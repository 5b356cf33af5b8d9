// Which norm plugins a model has, to the byte.
#ifndef PLUMB_RUNTIME_TOOLS_NORM_FILES_H_
#define PLUMB_RUNTIME_TOOLS_NORM_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/tools/host_runtime.h"

struct plumb_model;

namespace plumb {

// A line for each norm of the model: its id, its version and, where it comes from a file, the hash
// of that. Equal texts: equal plugins. Errors: a file that is gone.
absl::StatusOr<std::string> NormFilesText(HostRuntime* runtime, const plumb_model* model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_NORM_FILES_H_
