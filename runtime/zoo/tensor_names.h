// SPDX-License-Identifier: Apache-2.0
// Patterns for names of tensors: {layer}, {head} and {expert} match numbers from 0, * matches any
// text.
// Stateless.
#ifndef PLUMB_RUNTIME_ZOO_TENSOR_NAMES_H_
#define PLUMB_RUNTIME_ZOO_TENSOR_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

// Numbers in a name, from 0; -1 if the pattern has none.
struct TensorNumbers {
  int64_t layer = -1, head = -1;
};

// Returns the numbers of `name` if it matches the pattern, otherwise nullopt.
std::optional<TensorNumbers> MatchTensorName(absl::string_view pattern, absl::string_view name);

// Returns the pattern with its numbers substituted.
std::string FillTensorName(absl::string_view pattern, int64_t layer, int64_t expert,
                           int64_t head = 0);

// Returns true if the pattern contains {expert}.
bool NamesExperts(absl::string_view pattern);

// Returns `name` without the longest matching prefix.
absl::string_view WithoutPrefix(absl::string_view name, const std::vector<std::string>& prefixes);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_TENSOR_NAMES_H_
