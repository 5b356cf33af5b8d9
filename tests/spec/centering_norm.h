// SPDX-License-Identifier: Apache-2.0
// A cross-row norm that is linked into the tests: y = x - mean over the rows, without parameters.
// It has minimal state: running_mean [dim] moves halfway to the batch's mean in every training
// call, and calls [] counts them.
#ifndef PLUMB_TESTS_SPEC_CENTERING_NORM_H_
#define PLUMB_TESTS_SPEC_CENTERING_NORM_H_

#include "plumb/norm_plugin.h"

namespace plumb {

const plumb_norm_plugin* CenteringNorm();      // "test.centering": evaluates with running_mean
const plumb_norm_plugin* CenteringEvalNorm();  // "test.centering_eval": uses the call's mean

}  // namespace plumb

#endif  // PLUMB_TESTS_SPEC_CENTERING_NORM_H_
