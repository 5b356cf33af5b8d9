// SPDX-License-Identifier: Apache-2.0
// Small ops for tests of graphs and of their compilation. All tensors are f32 of one shape unless
// noted.
//
//   combine(x1, .., xn) {coefs, constant}   sum_i coefs_i x_i + constant; may take x1's memory
//   mul(a, b)                               may take a's or b's memory
//   sum(x) -> [1]                           no in-place form; uses scratch
//   spread(x[1]) {dims}                     x in every element
//   split(x[2n]) -> [n], [n]
//   join((a[n]), (b[n])) {half=n} -> [2n]   an absent half is zeros
//   reverse(x)                              reads elements that it has overwritten: never in place
//   accumulate(state, x) -> state'          state + x, updates state
//   pick(x[n], index i32[1]) -> [1]         an index outside [0, n) fails; no gradient
//   fill() {dims, value}
//   stuck(x)                                has a shape rule, but no kernel can be created
#ifndef PLUMB_TESTS_GRAPH_TEST_OPS_H_
#define PLUMB_TESTS_GRAPH_TEST_OPS_H_

#include "runtime/graph/op.h"

namespace plumb {

void RegisterTestOps(OpRegistry* registry);

}  // namespace plumb

#endif  // PLUMB_TESTS_GRAPH_TEST_OPS_H_
