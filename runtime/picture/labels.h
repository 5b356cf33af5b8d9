// SPDX-License-Identifier: Apache-2.0
// Labels that represent several layers which differ only in numbers. Stateless.
#ifndef PLUMB_RUNTIME_PICTURE_LABELS_H_
#define PLUMB_RUNTIME_PICTURE_LABELS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/picture/flow.h"

namespace plumb {

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

#endif  // PLUMB_RUNTIME_PICTURE_LABELS_H_
