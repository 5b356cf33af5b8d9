// SPDX-License-Identifier: Apache-2.0
// The other direction: a config.json for a model's description, by the same family. Pure.
#ifndef PLUMB_RUNTIME_ZOO_FAMILY_EXPORT_H_
#define PLUMB_RUNTIME_ZOO_FAMILY_EXPORT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/zoo/family.h"

namespace plumb {

// Fields of `config` replaced by those that the model's description has (Scalar.from_model), with
// what the family's config.json has beside them. `facts`: numbers of the model that its description
// need not say, over those that it does: dimensions by the names of the formula language, and
// "norm_attr.eps", an attribute that all of its norms have alike, which stands for
// "norm.NAME.attr.eps.number". The result need not describe the model: whoever asks makes the model
// of it (ReadConfigValues, ModelText) and compares the two.
absl::StatusOr<nlohmann::json> ConfigForModel(const Family& family, absl::string_view model_text,
                                              const std::map<std::string, double>& facts,
                                              const nlohmann::json& config);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_FAMILY_EXPORT_H_
