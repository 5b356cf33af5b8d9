// SPDX-License-Identifier: Apache-2.0
// A norm that is linked into the tests: y = x, without parameters. In calls of `poison_rows` rows y
// is NaN, which spoils the batches of one length, wherever and however often they run.
#ifndef PLUMB_TESTS_APP_POISON_NORM_H_
#define PLUMB_TESTS_APP_POISON_NORM_H_

#include "plumb/norm_plugin.h"

namespace plumb {

inline int64_t poison_rows = 0;  // 0: never

const plumb_norm_plugin* PoisonNorm();  // "test.poison"

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_POISON_NORM_H_
