// SPDX-License-Identifier: Apache-2.0
// ConfigValues: content of a config.json under the family's names: numbers and texts. A value.
#ifndef PLUMB_RUNTIME_ZOO_CONFIG_VALUES_H_
#define PLUMB_RUNTIME_ZOO_CONFIG_VALUES_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/zoo/family.h"

namespace plumb {

struct ConfigValues {
  std::map<std::string, double> scalars;
  std::map<std::string, std::vector<double>> by_layer;  // n_layer elements each
  std::map<std::string, std::string> string_variables;
  std::vector<std::string> warnings;  // for users: warnings of the family about this config.json

  int64_t n_layer() const { return static_cast<int64_t>(scalars.at("n_layer")); }
};

// Max number of layers. Each layer uses memory before any weights are read.
inline constexpr int64_t kMaxImportedLayers = 10000;

// Returns the value at a path, such as "rope_scaling.factor", or null if it is missing or null.
const nlohmann::json* FindField(const nlohmann::json& config, absl::string_view path);
// Removes the field at a path. Returns false if it does not exist.
bool EraseField(absl::string_view path, nlohmann::json* config);

// Reads the values. `file` names config.json in errors. Errors: all errors at once, including the
// family's refusals, each with its field.
absl::StatusOr<ConfigValues> ReadConfigValues(const Family& family, const nlohmann::json& config,
                                              const std::string& file);

// Evaluates a number, or a condition (0 is false). `layer` is counted from 1; 0 means outside of
// the layers. `head` is the number of {head} in a tensor's name; -1: there is none. Errors point
// into the expression.
absl::StatusOr<double> Evaluate(const Expression& expression, const ConfigValues& values,
                                int64_t layer = 0, int64_t head = -1);
// Returns true if a condition holds, or there is none.
absl::StatusOr<bool> Holds(const std::optional<Expression>& when, const ConfigValues& values,
                           int64_t layer = 0);
// Evaluates an expression whose value must be an integer >= 0.
absl::StatusOr<int64_t> EvaluateCount(const Expression& expression, const ConfigValues& values,
                                      int64_t layer = 0, int64_t head = -1);

// Returns an expression in `layer`, counted from 1, that has these values.
std::string ExpressionByLayer(const std::vector<double>& values);

// Returns the text with its expressions replaced by their values: words verbatim, numbers, and for
// a per-layer scalar an expression in `layer`, unless `layer` is given.
absl::StatusOr<std::string> Render(const TextTemplate& text, const ConfigValues& values,
                                   int64_t layer = 0);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_CONFIG_VALUES_H_
