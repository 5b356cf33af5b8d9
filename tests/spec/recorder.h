// SPDX-License-Identifier: Apache-2.0
// Text of the calls that a walk makes to its backend.
#ifndef PLUMB_TESTS_SPEC_RECORDER_H_
#define PLUMB_TESTS_SPEC_RECORDER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// Returns the calls of a model's walk, one per line, such as "t3 = t0 + t2". Handles are t0, t1,
// ... in order. Returns the message of the error if the model is refused.
std::string Trace(absl::string_view model_text);

// Returns the lines of a trace that contain `part`.
std::string LinesWith(absl::string_view part, const std::string& trace);

}  // namespace plumb

#endif  // PLUMB_TESTS_SPEC_RECORDER_H_
