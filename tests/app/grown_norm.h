// SPDX-License-Identifier: Apache-2.0
// Norms of ABI 1.1 that are linked into the tests: they use what 1.0 has not.
#ifndef PLUMB_TESTS_APP_GROWN_NORM_H_
#define PLUMB_TESTS_APP_GROWN_NORM_H_

#include "plumb/norm_plugin.h"

namespace plumb {

// "test.grown": y = gain tanh(x), the gain [dim], or, in a slot of heads, [heads, dim]. The gain is
// written by the plugin: FilledGain(seed, i), or, where the attribute `fails` is set, nothing.
// Where the attribute `aware` is set, it is, as far as position and step are known,
//     y = (gain + position / 8 + step / 16) tanh(x)
const plumb_norm_plugin* GrownNorm();

// "test.pair", of two inputs: y = (gain + tanh(x2) + ..) tanh(x), otherwise alike.
const plumb_norm_plugin* PairNorm();

// Element i of a gain that was filled with this seed.
float FilledGain(uint64_t seed, int64_t i);

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_GROWN_NORM_H_
