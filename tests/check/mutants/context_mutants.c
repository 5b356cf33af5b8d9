/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of a norm with heads and positions, tests/sdk/v1_1/graceful_norm.c. */
/* clang-format off */
/* 471. the first row of a range is a row of head 0.
 * 472. has a gain per head, although the layout declares that all rows are alike.
 * 473. reads positions, although the layout does not request them.
 * 474. reads positions per row, even in a call of several rows per token.
 * 475. the first token of a range is the first token of the call. */
/* clang-format on */
#include "many.h"

#include "operand.h"

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1);
static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1);
static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out);
#define Forward(norm, call, r0, r1) HonestForward(norm, call, r0, r1)
#define Backward(norm, call, r0, r1) HonestBackward(norm, call, r0, r1)
#define Layout(norm, out) HonestLayout(norm, out)
#include "tests/sdk/v1_1/old_names.h"
#include "tests/sdk/v1_1/graceful_norm.c"
#undef Forward
#undef Backward
#undef Layout

typedef plumb_status (*RowFunction)(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                    int64_t r0, int64_t r1);

static plumb_status Spoil(RowFunction honest, const plumb_norm_instance* norm,
                          const plumb_norm_call* call, int64_t r0, int64_t r1) {
  const int known = PLUMB_HAS(plumb_norm_call, call, context) && call->context != NULL;
  plumb_norm_call mine = CopyOfCall(call);
  plumb_norm_context context;
  if (IS(471) && !known) { /* without the rows before r0 */
    if (mine.x != NULL) mine.x = (const char*)mine.x + r0 * mine.x_pitch;
    if (mine.y != NULL) mine.y = (char*)mine.y + r0 * mine.y_pitch;
    if (mine.dy != NULL) mine.dy = (const char*)mine.dy + r0 * mine.dy_pitch;
    if (mine.dx != NULL) mine.dx = (char*)mine.dx + r0 * mine.dx_pitch;
    return honest(norm, &mine, 0, r1 - r0);
  }
  if (!known) return honest(norm, call, r0, r1);
  context = *call->context;
  if (IS(474) && call->dy == NULL) context.rows_per_token = 1;
  if (IS(475) && context.positions != NULL) context.positions -= r0 / context.rows_per_token;
  mine.context = &context;
  return honest(norm, &mine, r0, r1);
}

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  return Spoil(HonestForward, norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return Spoil(HonestBackward, norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  const plumb_status status = HonestLayout(norm, out);
  if (IS(472) && PLUMB_HAS(plumb_norm_layout, out, heads)) out->heads = 0;
  if (IS(473) && PLUMB_HAS(plumb_norm_layout, out, context_wants)) out->context_wants = 0;
  return status;
}

#define LIST(X) X(0, none) X(471, N4) X(472, N4) X(473, N4) X(474, N4) X(475, N4)
MANY(LIST)
