// SPDX-License-Identifier: Apache-2.0
// Settings: fields of models and recipes by path, "model.n_layer", as --set assigns them. Pure
// functions.
#ifndef PLUMB_RUNTIME_CLIENT_SETTINGS_H_
#define PLUMB_RUNTIME_CLIENT_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/model.h"

namespace plumb {

// Fails, with a suggestion, unless the path begins with "model." or "train." and its next part can
// be a field there. Does not check the rest of the path.
absl::Status CheckSetting(const std::string& path);

// Settings in the order of their assignments, without "model." and "train.".
struct Settings {
  Overrides model, train;
};

// Parses assignments such as "model.n_layer=4" and "train.max_steps=200". Errors: those of
// CheckSetting, and an assignment without "=".
absl::StatusOr<Settings> ParseSettings(const std::vector<std::string>& assignments);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_SETTINGS_H_
