// SPDX-License-Identifier: Apache-2.0
// The frequencies of the pairs of a rotary embedding, and the attributes that define them. Pure.
// Private to the module.
#ifndef PLUMB_RUNTIME_OPS_ROPE_FREQUENCIES_H_
#define PLUMB_RUNTIME_OPS_ROPE_FREQUENCIES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/graph/attrs.h"

namespace plumb {

// Returns the number of rotated elements of each head: attribute dims, or all of head_dim.
int64_t RotatedElements(const Attrs& attrs);

// Fails if the attributes of op rope, except head_dim, are invalid.
absl::Status CheckRopeAttrs(const Attrs& attrs);

// Returns the radians per position of each pair. With theta_i = theta^(-2i/dims):
//   linear  theta_i / factor                          Chen et al., "Extending context window of
//                                                     LLMs via position interpolation" (2023)
//   llama3  between theta_i / factor and theta_i, by the turns in the original context
//                                                     Llama Team, "Llama 3" (2024), and its code
//   yarn    the same, by the index of the pair        Peng et al., "YaRN" (2023), section 3.2
//   longrope  theta_i / factor_i                      Ding et al., "LongRoPE" (2024)
// Requires: CheckRopeAttrs.
std::vector<double> RopeFrequencies(const Attrs& attrs);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ROPE_FREQUENCIES_H_
