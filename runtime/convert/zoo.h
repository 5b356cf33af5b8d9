// SPDX-License-Identifier: Apache-2.0
// Models that plumb ships, and families of checkpoints: *.pbtxt and *.import.pbtxt in the
// directories "zoo" next to those of placements. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_ZOO_H_
#define PLUMB_RUNTIME_CONVERT_ZOO_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"
#include "runtime/zoo/config_keys.h"
#include "runtime/zoo/family.h"

namespace plumb {

struct ZooModel {
  std::string name, path;  // name: file name without ".pbtxt"
  std::string text;
  nlohmann::ordered_json description;  // DescribeModel
};

// Returns all models, sorted by name. Errors: those of a file, with location.
absl::StatusOr<std::vector<ZooModel>> ListZoo(HostRuntime* runtime);
// Returns one model. Errors: kNotFound with a suggestion.
absl::StatusOr<ZooModel> FindZooModel(HostRuntime* runtime, const std::string& name);
// Returns the names of the families that can be imported, sorted.
std::vector<std::string> ListFamilies(const HostRuntime& runtime);

// Returns the keys of config.json that at least one family reads or lists, sorted. Errors: those of
// a file, with location.
absl::StatusOr<std::vector<KeyUses>> ListZooKeys(const HostRuntime& runtime);

// Reads a family. Its parts are searched next to it, then in the directories.
absl::StatusOr<Family> ReadFamily(const HostRuntime& runtime, const std::string& path);

// Reads all families, the first of each file name.
absl::StatusOr<std::vector<Family>> ReadFamilies(const HostRuntime& runtime);

// Returns the family of a config.json, determined by model_type, else by architectures. Errors:
// kInvalidArgument if none fits, with the available ones, or if two fit.
absl::StatusOr<Family> FindFamily(const std::vector<Family>& families, const nlohmann::json& config,
                                  const std::string& config_path);

// Returns the family of that name. Errors: kNotFound with a suggestion.
absl::StatusOr<Family> FindFamilyNamed(const std::vector<Family>& families,
                                       const std::string& name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_ZOO_H_
