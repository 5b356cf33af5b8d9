// SPDX-License-Identifier: Apache-2.0
// Resolve: a description to a model that can be built. Finds placements and norms by name, checks
// dimensions and attributes, fills in defaults, and checks the formulas.
#ifndef PLUMB_RUNTIME_SPEC_RESOLVE_H_
#define PLUMB_RUNTIME_SPEC_RESOLVE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/plugin/registry.h"
#include "runtime/spec/model_spec.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

struct ResolveOptions {
  // Directories of shipped placements, "<name>.pbtxt" each, in order.
  std::vector<std::string> placement_directories;
};

// Errors: kInvalidArgument with places for everything that the author can mend (all dimension
// mistakes at once); kFailedPrecondition when a norm's plugin is there but cannot be used.
// `plugins` loads libraries.
absl::StatusOr<ResolvedModel> Resolve(const ModelSpec& spec, PluginRegistry* plugins,
                                      const ResolveOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_RESOLVE_H_
