// SPDX-License-Identifier: Apache-2.0
// The model's description that a family's template gives for a config.json. Pure functions.
#ifndef PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_
#define PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"

namespace plumb {

// The shortest text that reads as the same number.
std::string PlainNumber(double value);

// The text with its expressions' values: words as they are, numbers, and, of a scalar that has a
// value for each layer, an expression in `layer`.
absl::StatusOr<std::string> Render(const TextTemplate& text, const ConfigValues& values,
                                   int64_t layer = 0);

// A model's description in text format.
absl::StatusOr<std::string> ModelText(const Family& family, const ConfigValues& values);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_FAMILY_TEMPLATE_H_
