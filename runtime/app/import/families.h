// SPDX-License-Identifier: Apache-2.0
// The families of checkpoints that there are: files *.import.pbtxt in the directories "zoo" beside
// those of placements. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_IMPORT_FAMILIES_H_
#define PLUMB_RUNTIME_APP_IMPORT_FAMILIES_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/zoo/family.h"

namespace plumb {

// Directories of models and families, in the order of the search.
std::vector<std::string> ZooDirectories(const HostRuntime& runtime);

// Files of these directories whose names end so, the first of each name.
std::vector<std::string> ZooFiles(const HostRuntime& runtime, absl::string_view ending);

// Reads a family; its parts are looked for next to it, then in ZooDirectories().
absl::StatusOr<Family> ReadFamily(const HostRuntime& runtime, const std::string& path);

// All families, the first of each file name.
absl::StatusOr<std::vector<Family>> ReadFamilies(const HostRuntime& runtime);

// The family of a config.json: by its model_type, else by its architectures. kInvalidArgument for
// none, listing those that there are, and for two.
absl::StatusOr<Family> FindFamily(const HostRuntime& runtime, const nlohmann::json& config,
                                  const std::string& config_path);

// The family of that name. kNotFound with a suggestion.
absl::StatusOr<Family> FindFamilyNamed(const HostRuntime& runtime, const std::string& name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_IMPORT_FAMILIES_H_
