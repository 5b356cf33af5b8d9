// SPDX-License-Identifier: Apache-2.0
// Difference of two versions of a text. Stateless.
#ifndef PLUMB_RUNTIME_CLIENT_TEXT_DIFFERENCE_H_
#define PLUMB_RUNTIME_CLIENT_TEXT_DIFFERENCE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// Returns the lines from the first to the last that differ: "  - " for lines of `then`, "  + " for
// lines of `now`, max `max` of each and a count of the rest. Returns "" for equal texts.
std::string TextDifference(absl::string_view then, absl::string_view now, size_t max = 8);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_TEXT_DIFFERENCE_H_
