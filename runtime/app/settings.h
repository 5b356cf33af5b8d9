// SPDX-License-Identifier: Apache-2.0
// Settings: fields of models and recipes by path, "model.n_layer", as --set assigns them. Pure
// functions.
#ifndef PLUMB_RUNTIME_APP_SETTINGS_H_
#define PLUMB_RUNTIME_APP_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace plumb {

struct SettingField {
  std::string path;                 // "model.attention.bias", "train.schedule"
  std::vector<std::string> values;  // of an enum or a bool; empty for other types
};

// Returns all settings, ordered as in the schema, except fields inside repeated messages.
std::vector<SettingField> ListSettings();

// Fails, with a suggestion, unless the path begins with "model." or "train." and its next part can
// be a field there. Does not check the rest of the path.
absl::Status CheckSetting(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_SETTINGS_H_
