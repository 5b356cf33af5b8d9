// SPDX-License-Identifier: Apache-2.0
// Norms with statistics over rows that are linked into the tests of the host's side. "test.batch"
// (parameters gain and bias) computes some gradients of parameters in stats_finalize and the others
// in backward, keeps running statistics, and counts backward calls in its buffers.
// "test.batch_eval" takes statistics in evaluation too, has no buffers, and saves a number per row.
#ifndef PLUMB_TESTS_OPS_BATCH_NORM_PLUGIN_H_
#define PLUMB_TESTS_OPS_BATCH_NORM_PLUGIN_H_

#include "plumb/norm_plugin.h"

namespace plumb {

const plumb_norm_plugin* BatchNorm();
const plumb_norm_plugin* BatchNormInEvaluationToo();

}  // namespace plumb

#endif  // PLUMB_TESTS_OPS_BATCH_NORM_PLUGIN_H_
