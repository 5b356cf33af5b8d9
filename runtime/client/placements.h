// SPDX-License-Identifier: Apache-2.0
// Placements that plumb finds by name: *.pbtxt in the directories of placements. Stateless.
#ifndef PLUMB_RUNTIME_CLIENT_PLACEMENTS_H_
#define PLUMB_RUNTIME_CLIENT_PLACEMENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"

namespace plumb {

struct InstalledPlacement {
  std::string name, path;
  std::string text;  // content of the file
  std::string doc;   // "Post-norm: the sum of stream and sublayer is normalized."; may be empty
};

// Returns all placements, sorted by name. Errors: those of a file, with location.
absl::StatusOr<std::vector<InstalledPlacement>> ListPlacements(const HostRuntime& runtime);

// Returns one placement. Errors: kNotFound with a suggestion.
absl::StatusOr<InstalledPlacement> FindPlacement(const HostRuntime& runtime,
                                                 const std::string& name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_PLACEMENTS_H_
