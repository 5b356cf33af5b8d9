// SPDX-License-Identifier: Apache-2.0
// A norm plugin that is linked into the tests: y = tanh(scale * x + shift), with scale a single
// number and shift a vector. Unlike the shipped norms it reads y in its backward pass, saves
// nothing, uses scratch, and fails on a NaN with the number of the row.
#ifndef PLUMB_TESTS_OPS_TANH_NORM_PLUGIN_H_
#define PLUMB_TESTS_OPS_TANH_NORM_PLUGIN_H_

#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

namespace plumb {

const plumb_norm_plugin* TanhNorm();              // "test.tanh"
const plumb_norm_plugin* TanhNormWithoutF64();    // "test.tanh_f32"
const plumb_norm_plugin* TanhNormWithResidual();  // "test.tanh_residual": PLUMB_EXT_RESIDUAL too

}  // namespace plumb

#endif  // PLUMB_TESTS_OPS_TANH_NORM_PLUGIN_H_
