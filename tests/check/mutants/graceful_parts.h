/* SPDX-License-Identifier: Apache-2.0 */
/* Includes tests/sdk/v1_1/graceful_norm.c, a norm with heads and positions. The including file
 * defines Forward, Backward and Layout, and can call HonestForward and so on. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_GRACEFUL_PARTS_H_
#define PLUMB_TESTS_CHECK_MUTANTS_GRACEFUL_PARTS_H_

#include "plumb/norm_plugin.h"

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1);
static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1);
static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out);
#define Forward(norm, call, r0, r1) HonestForward(norm, call, r0, r1)
#define Backward(norm, call, r0, r1) HonestBackward(norm, call, r0, r1)
#define Layout(norm, out) HonestLayout(norm, out)
#include "tests/sdk/v1_1/graceful_norm.c"
#include "tests/sdk/v1_1/old_names.h"
#undef Forward
#undef Backward
#undef Layout

#endif /* PLUMB_TESTS_CHECK_MUTANTS_GRACEFUL_PARTS_H_ */
