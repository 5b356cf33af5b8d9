// SPDX-License-Identifier: Apache-2.0
// Generates the model's description from a family's pieces of it and a config.json. Stateless.
#ifndef PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_
#define PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"

namespace plumb {

// Returns the model's description in text format: the family's pieces whose conditions hold, then
// the fields of its scalars and words. Errors: kInvalidArgument with a location in the family.
absl::StatusOr<std::string> ModelText(const Family& family, const ConfigValues& values);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_
