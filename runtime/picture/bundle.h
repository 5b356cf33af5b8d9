// SPDX-License-Identifier: Apache-2.0
// Bundle: merges nodes of a section that do the same for each index of a name: "h[0]" to "h[3]"
// become one line "h[0..3]", the sums that set them become one sum, and their weights "r[0, 1]" one
// label "r". CommonLabel and IndexText merge labels of layers that differ only in numbers.
// Stateless.
#ifndef PLUMB_RUNTIME_PICTURE_BUNDLE_H_
#define PLUMB_RUNTIME_PICTURE_BUNDLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/picture/flow.h"

namespace plumb {

// Returns the bundled section. If several terms of a sum have a learned factor, the first factor of
// each becomes the label of its edge, so that a weighted sum shows its weights.
FlowSection Bundle(const FlowSection& section);

// Returns "r" for "r[0, 1]", "tanh(pr(h))" for "tanh(pr[2](h[1]))".
std::string WithoutIndices(absl::string_view text);

// Returns a common label for two that differ only in numbers, with "…" for the numbers that differ:
// "min(… * step, 1)". Otherwise returns nullopt. Digits in names are not numbers: "norm_1" and
// "norm_2" have no common label.
std::optional<std::string> CommonLabel(absl::string_view a, absl::string_view b);

// Returns the index of a name in several layers as formulas write it: "0..layer - 1" for the
// indices {0, 0}, {0, 1}, {0, 2} in layers 0, 1, 2; "..." if it is not linear in the layer.
// `layers` counts from 0, `layer` in the text from 1. Requires: layers.size() == indices.size()
// >= 1.
std::string IndexText(const std::vector<int64_t>& layers, const std::vector<FlowIndex>& indices);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_BUNDLE_H_
