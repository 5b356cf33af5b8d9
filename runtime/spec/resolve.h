// SPDX-License-Identifier: Apache-2.0
// Resolve: turns a description into a model that can be built. Finds placements and norms by name,
// checks dimensions and attributes, fills in defaults, and checks the formulas.
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
  // Directories of shipped placements, one per "<name>.pbtxt", searched in order.
  std::vector<std::string> placement_directories;
};

// Resolves all names of `spec`. `plugins` loads libraries of norms.
// Errors: kInvalidArgument with locations for everything that the author can fix (all errors in
// dimensions at once); kFailedPrecondition if the plugin of a norm exists but cannot be used.
absl::StatusOr<ResolvedModel> Resolve(const ModelSpec& spec, PluginRegistry* plugins,
                                      const ResolveOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_RESOLVE_H_
