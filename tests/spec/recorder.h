// SPDX-License-Identifier: Apache-2.0
// What a walk tells its backend, as text.
#ifndef PLUMB_TESTS_SPEC_RECORDER_H_
#define PLUMB_TESTS_SPEC_RECORDER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// Of the walk of a model: one line a call, "t3 = t0 + t2". Handles are t0, t1, ... in order. The
// message of the error where the model is refused.
std::string Trace(absl::string_view model_text);

// Of a trace, the lines that hold `part`.
std::string LinesWith(absl::string_view part, const std::string& trace);

}  // namespace plumb

#endif  // PLUMB_TESTS_SPEC_RECORDER_H_
