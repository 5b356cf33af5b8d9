// SPDX-License-Identifier: Apache-2.0
// Conversion between a config.json and a model's description, by a family. Stateless.
#ifndef PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_
#define PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"

namespace plumb {

// Returns the model's description in text format: the family's pieces whose conditions hold, then
// the fields of its scalars and words. Errors: kInvalidArgument with a location in the family.
absl::StatusOr<std::string> ModelText(const Family& family, const ConfigValues& values);

// Returns `config` with its fields replaced by values of the model's description
// (ReadModelValues) and with the family's additional fields. `facts` are numbers of the model that
// take precedence over the description: dimensions under their names in the formula language, and
// "norm_attr.eps", an attribute with the same value in all norms, which stands for
// "norm[NAME].attr[eps].number". The result need not describe the model: the caller must convert it
// back (ReadConfigValues, ModelText) and compare. `unread` gets possible reasons for a difference,
// also on errors: parts of the family that the description lacks.
absl::StatusOr<nlohmann::json> ConfigForModel(const Family& family, absl::string_view model_text,
                                              const std::map<std::string, double>& facts,
                                              const nlohmann::json& config,
                                              std::vector<std::string>* unread);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_
