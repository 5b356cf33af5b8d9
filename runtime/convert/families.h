// SPDX-License-Identifier: Apache-2.0
// Available families of checkpoints: files *.import.pbtxt in the directories "zoo" next to those of
// placements. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_FAMILIES_H_
#define PLUMB_RUNTIME_CONVERT_FAMILIES_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/zoo/family.h"

namespace plumb {

// Returns the directories of models and families, in search order.
std::vector<std::string> ZooDirectories(const HostRuntime& runtime);

// Returns the files in these directories whose names end with `ending`, the first of each name.
std::vector<std::string> ZooFiles(const HostRuntime& runtime, absl::string_view ending);

// Reads a family. Its parts are searched next to it, then in ZooDirectories().
absl::StatusOr<Family> ReadFamily(const HostRuntime& runtime, const std::string& path);

// Reads all families, the first of each file name.
absl::StatusOr<std::vector<Family>> ReadFamilies(const HostRuntime& runtime);

// Returns the family of a config.json, determined by model_type, else by architectures. Errors:
// kInvalidArgument if none fits, with the available ones, or if two fit.
absl::StatusOr<Family> FindFamily(const HostRuntime& runtime, const nlohmann::json& config,
                                  const std::string& config_path);

// Returns the family of that name. Errors: kNotFound with a suggestion.
absl::StatusOr<Family> FindFamilyNamed(const HostRuntime& runtime, const std::string& name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_FAMILIES_H_
