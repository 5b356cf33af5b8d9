// SPDX-License-Identifier: Apache-2.0
// Models that plumb ships: *.pbtxt in the directories "zoo" next to those of placements. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_ZOO_H_
#define PLUMB_RUNTIME_CONVERT_ZOO_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"

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

// Key of config.json, and its use by family: sorted names of families.
struct ZooKey {
  std::string key;  // dots lead into objects; * matches any text
  std::vector<std::string> read;
  std::map<std::string, std::vector<std::string>> irrelevant;  // keyed by reason
  std::vector<std::string> refused;                            // families that reject the key
};

// Returns the keys that at least one family reads or lists, sorted. Errors: those of a file, with
// location.
absl::StatusOr<std::vector<ZooKey>> ListZooKeys(const HostRuntime& runtime);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_ZOO_H_
