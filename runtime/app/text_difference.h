// SPDX-License-Identifier: Apache-2.0
// What differs between two versions of a text.
#ifndef PLUMB_RUNTIME_APP_TEXT_DIFFERENCE_H_
#define PLUMB_RUNTIME_APP_TEXT_DIFFERENCE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// The lines from the first to the last that differ: "  - " those of `then`, "  + " those of `now`,
// of each at most `most` and a count of the others. "" for equal texts.
std::string TextDifference(absl::string_view then, absl::string_view now, size_t most = 8);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TEXT_DIFFERENCE_H_
