// SPDX-License-Identifier: Apache-2.0
// Function names from papers and libraries that the language spells differently or does not have,
// with advice for the error message. Stateless.
#ifndef PLUMB_RUNTIME_SPEC_KNOWN_FUNCTIONS_H_
#define PLUMB_RUNTIME_SPEC_KNOWN_FUNCTIONS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// Returns advice such as "write max(x, 0)" for "relu" or "ReLU", or "" for any other name. Ignores
// case and underscores.
std::string SuggestReplacement(absl::string_view name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_KNOWN_FUNCTIONS_H_
