// SPDX-License-Identifier: Apache-2.0
// What papers call functions that the language has under another name, or that are no formula's: so
// that a mistake's message says what to write.
#ifndef PLUMB_RUNTIME_SPEC_KNOWN_FUNCTIONS_H_
#define PLUMB_RUNTIME_SPEC_KNOWN_FUNCTIONS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// "write max(x, 0)" for "relu", "ReLU"; "" for a name that is none of those. Case and underscores
// make no difference.
std::string InsteadOf(absl::string_view name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_KNOWN_FUNCTIONS_H_
