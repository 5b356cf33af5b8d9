// SPDX-License-Identifier: Apache-2.0
// Bundle: a section with what is done alike for each index of a name drawn once: "h[0]" to "h[3]"
// are one line "h[0..3]", the sums that make them anew one sum, their weights "r[0, 1]" one label
// "r". Pure.
#ifndef PLUMB_RUNTIME_PICTURE_BUNDLE_H_
#define PLUMB_RUNTIME_PICTURE_BUNDLE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/picture/flow.h"

namespace plumb {

// First learned factors of a sum's terms become labels of its edges, where there are several: a
// weighted sum is read from its weights.
FlowSection Bundle(const FlowSection& section);

// "r" of "r[0, 1]", "tanh(pr(h))" of "tanh(pr[2](h[1]))".
std::string WithoutIndices(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_BUNDLE_H_
