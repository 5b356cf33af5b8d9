// SPDX-License-Identifier: Apache-2.0
// Norms that are linked into the tests and use the additions of ABI 1.1.
#ifndef PLUMB_TESTS_APP_GROWN_NORM_H_
#define PLUMB_TESTS_APP_GROWN_NORM_H_

#include "plumb/norm_plugin.h"

namespace plumb {

// Returns "test.grown": y = gain tanh(x), with a gain [dim] or, in a slot of heads, [heads, dim].
// The plugin fills the gain: element i is FilledGain(seed, i). If the attribute `fails` is set, it
// fills nothing. If the attribute `aware` is set, the known ones of position and step are added:
//     y = (gain + position / 8 + step / 16) tanh(x)
const plumb_norm_plugin* GrownNorm();

// Returns "test.pair", the same norm with two inputs: y = (gain + tanh(x2) + ..) tanh(x).
const plumb_norm_plugin* PairNorm();

// Returns element i of a gain that was filled with this seed.
float FilledGain(uint64_t seed, int64_t i);

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_GROWN_NORM_H_
