// SPDX-License-Identifier: Apache-2.0
// Labels that stand for several layers that do the same with other numbers. Pure.
#ifndef PLUMB_RUNTIME_PICTURE_LABELS_H_
#define PLUMB_RUNTIME_PICTURE_LABELS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/picture/flow.h"

namespace plumb {

// Returns one label for two that differ in nothing but numbers, with "…" for those that do: "min(…
// * step, 1)". Digits of names are not numbers: "norm_1" and "norm_2" have no common label.
std::optional<std::string> CommonLabel(absl::string_view a, absl::string_view b);

// Returns the index of a name in several layers as formulas write it: "0..layer - 1" for the
// indices {0, 0}, {0, 1}, {0, 2} in layers 0, 1, 2; "..." where it is no multiple of the layer.
// `layers` counts from 0, `layer` in the text from 1. Requires as many indices as layers, at least
// one.
std::string IndexText(const std::vector<int64_t>& layers, const std::vector<FlowIndex>& indices);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_LABELS_H_
