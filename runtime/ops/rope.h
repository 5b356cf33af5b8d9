// SPDX-License-Identifier: Apache-2.0
// Frequencies of rotary embeddings. Stateless.
#ifndef PLUMB_RUNTIME_OPS_ROPE_H_
#define PLUMB_RUNTIME_OPS_ROPE_H_

#include <vector>

#include "runtime/graph/attrs.h"

namespace plumb {

// Returns the angle by which each pair of elements turns from one token to the next, for the
// attributes of op rope. Requires: the op accepts them.
std::vector<double> RopeFrequencies(const Attrs& attrs);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ROPE_H_
