// SPDX-License-Identifier: Apache-2.0
// ConfigValues: what a config.json says, in the names of a family: numbers and words. A value.
#ifndef PLUMB_RUNTIME_ZOO_CONFIG_VALUES_H_
#define PLUMB_RUNTIME_ZOO_CONFIG_VALUES_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/zoo/family.h"

namespace plumb {

struct ConfigValues {
  std::map<std::string, double> scalars;
  std::map<std::string, std::vector<double>> by_layer;  // [n_layer] each
  std::map<std::string, std::string> words;
  std::vector<std::string> warnings;  // for people: what the family says of this config.json

  int64_t n_layer() const { return static_cast<int64_t>(scalars.at("n_layer")); }
};

// Layers that a family may have; each costs memory before its weights are seen.
inline constexpr int64_t kMaxImportedLayers = 10000;

// The value at a path, "rope_scaling.factor"; null: there is none, or it is null.
const nlohmann::json* FindField(const nlohmann::json& config, absl::string_view path);
// Returns true if the field at a path is there, and is null.
bool FieldIsNull(const nlohmann::json& config, absl::string_view path);

// All mistakes at once, and what the family refuses, each with its field; `file` names config.json.
absl::StatusOr<ConfigValues> ReadConfigValues(const Family& family, const nlohmann::json& config,
                                              const std::string& file);

// A number, or a condition (0 is false). `layer`: from 1; 0: outside of the layers. Errors point
// into the expression.
absl::StatusOr<double> Evaluate(const Expression& expression, const ConfigValues& values,
                                int64_t layer = 0);
// The same of a whole number, from 0.
absl::StatusOr<int64_t> EvaluateCount(const Expression& expression, const ConfigValues& values,
                                      int64_t layer = 0);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_CONFIG_VALUES_H_
