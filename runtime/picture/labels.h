// Labels of layers that do the same with other numbers. Pure.
#ifndef PLUMB_RUNTIME_PICTURE_LABELS_H_
#define PLUMB_RUNTIME_PICTURE_LABELS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// One label for two that differ in nothing but numbers, with "…" for those that do: "min(… * step,
// 1)". Digits of names are not numbers: "norm_1" and "norm_2" have no common label.
std::optional<std::string> CommonLabel(absl::string_view a, absl::string_view b);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_LABELS_H_
