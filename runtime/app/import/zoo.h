// SPDX-License-Identifier: Apache-2.0
// The models that plumb ships, *.pbtxt in the directories "zoo" beside those of placements.
#ifndef PLUMB_RUNTIME_APP_IMPORT_ZOO_H_
#define PLUMB_RUNTIME_APP_IMPORT_ZOO_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/model.h"

namespace plumb {

struct ZooModel {
  std::string name, path;  // name: of the file, without ".pbtxt"
  std::string text;
  nlohmann::ordered_json description;  // DescribeModel
};

// All of them, by name. Errors: those of a file, with its place.
absl::StatusOr<std::vector<ZooModel>> ListZoo(HostRuntime* runtime);
// kNotFound with a suggestion.
absl::StatusOr<ZooModel> FindZooModel(HostRuntime* runtime, const std::string& name);
// Names of the families whose checkpoints can be imported, sorted.
std::vector<std::string> ListFamilies(const HostRuntime& runtime);

// A key of config.json, and what becomes of it by family: names of families, sorted.
struct ZooKey {
  std::string key;  // dots lead into objects; * is any text
  std::vector<std::string> read;
  std::map<std::string, std::vector<std::string>> irrelevant;  // by reason
  std::vector<std::string> refused;  // unless its value has no effect; they do not know it
};

// Returns the keys that any family reads or lists, sorted. Errors: those of a file, with its place.
absl::StatusOr<std::vector<ZooKey>> ListZooKeys(const HostRuntime& runtime);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_IMPORT_ZOO_H_
