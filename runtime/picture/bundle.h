// SPDX-License-Identifier: Apache-2.0
// Bundle: merges nodes of a section that do the same for each index of a name: "h[0]" to "h[3]"
// become one line "h[0..3]", the sums that set them become one sum, and their weights "r[0, 1]" one
// label "r". Stateless.
#ifndef PLUMB_RUNTIME_PICTURE_BUNDLE_H_
#define PLUMB_RUNTIME_PICTURE_BUNDLE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/picture/flow.h"

namespace plumb {

// Returns the bundled section. If several terms of a sum have a learned factor, the first factor of
// each becomes the label of its edge, so that a weighted sum shows its weights.
FlowSection Bundle(const FlowSection& section);

// Returns "r" for "r[0, 1]", "tanh(pr(h))" for "tanh(pr[2](h[1]))".
std::string WithoutIndices(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_BUNDLE_H_
