// SPDX-License-Identifier: Apache-2.0
// Names of tensors in a family's patterns: {layer} and {expert} stand for numbers from 0, * for any
// text. Pure functions.
#ifndef PLUMB_RUNTIME_ZOO_TENSOR_NAMES_H_
#define PLUMB_RUNTIME_ZOO_TENSOR_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

// The layer of `name`, if it fits the pattern; -1 where the pattern has none.
std::optional<int64_t> MatchTensorName(absl::string_view pattern, absl::string_view name);

// The pattern with its numbers filled in.
std::string FillTensorName(absl::string_view pattern, int64_t layer, int64_t expert);

// Whether the pattern has {expert}.
bool NamesExperts(absl::string_view pattern);

// `name` without the longest of the prefixes that it begins with.
absl::string_view WithoutPrefix(absl::string_view name, const std::vector<std::string>& prefixes);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_TENSOR_NAMES_H_
