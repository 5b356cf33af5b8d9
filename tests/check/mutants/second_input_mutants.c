/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of a norm of two inputs, tests/sdk/v1_1/adaptive_norm.c, whose functions they wrap.
 * Each line is: condition: bug (the rule that it violates). */
#include "many.h"
#include <string.h>

#include "operand.h"
#include "plumb/norm_plugin.h"
static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1);
static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1);
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call);
#define Forward(norm, call, r0, r1) HonestForward(norm, call, r0, r1)
#define Backward(norm, call, r0, r1) HonestBackward(norm, call, r0, r1)
#define FillA(norm, call) HonestFill(norm, call)
#include "tests/sdk/v1_1/old_names.h"
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef Forward
#undef Backward
#undef FillA

/* clang-format off */
/* 290. dim of 512 and more: dx2 lacks what the shift adds (the derivative).
 * 291. range not at 0: dx2 of its first row is not written ("written in backward").
 * 292. x2 has a wider pitch than x: it is read by x's pitch (x2_pitch).
 * 293. f32, dim above 256: dx2 is rounded to bf16 (element type).
 * 294. evaluation, more than 64 rows: x2 of the second row is read for the last one (row r).
 * 295. f32, dx is accumulated: dx2 is too ("overwritten").
 * 296. x2 is x: dx gets the gradients of both inputs, and dx2 zeros (the derivative).
 * 297. fill continues the random sequence of the previous call ("a pure function").
 * 298. fill is not finite if the seed is the largest one.
 * 299. fill allocates a table that is never freed. */
/* clang-format on */

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  plumb_norm_call mine = CopyOfCall(call);
  if (IS(292) && call->x2_pitch > call->x_pitch) mine.x2_pitch = call->x_pitch;
  if (IS(294) && (call->flags & PLUMB_CALL_TRAIN) == 0 && r1 - r0 > 64) {
    const plumb_status status = HonestForward(norm, &mine, r0, r1 - 1);
    if (status != PLUMB_OK) return status;
    mine.x2 = (const char*)mine.x2 - (r1 - 2 - r0) * mine.x2_pitch;
    return HonestForward(norm, &mine, r1 - 1, r1);
  }
  return HonestForward(norm, &mine, r0, r1);
}

#define SPOIL(NAME, REAL)                                                           \
  static void Spoil##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) {    \
    const REAL* b = (const REAL*)call->params[1];                                   \
    for (int64_t r = r0; r < r1; ++r) {                                             \
      const REAL* dy = PLUMB_CONST_ROW(REAL, call->dy, call->dy_pitch, r);          \
      REAL* dx2 = PLUMB_ROW(REAL, call->dx2, call->dx2_pitch, r);                   \
      for (uint32_t i = 0; i < call->dim; ++i) {                                    \
        if (IS(290) && call->dim >= 512) dx2[i] -= dy[i] * b[i];                    \
        if (IS(296) && call->x2 == call->x)                                         \
          PLUMB_ROW(REAL, call->dx, call->dx_pitch, r)[i] += dx2[i], dx2[i] = 0;    \
        if (IS(293) && call->dtype == PLUMB_DTYPE_F32 && call->dim > 256)           \
          dx2[i] = (REAL)plumb_bf16_to_float(plumb_bf16_from_float((float)dx2[i])); \
      }                                                                             \
    }                                                                               \
  }
SPOIL(F32, float)
SPOIL(F64, double)

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const size_t width =
      call->dim * (call->dtype == PLUMB_DTYPE_F64 ? sizeof(double) : sizeof(float));
  char before[8 * 16384];
  const int skips = IS(291) && r0 > 0 && r1 > r0 && width <= sizeof(before);
  if (skips) memcpy(before, PLUMB_ROW(char, call->dx2, call->dx2_pitch, r0), width);
  for (int64_t r = r0; IS(295) && r < r1 && call->dtype == PLUMB_DTYPE_F32 &&
                       (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0; ++r) {
    float* dx2 = PLUMB_ROW(float, call->dx2, call->dx2_pitch, r);
    memcpy(before, dx2, width);
    HonestBackward(norm, call, r, r + 1);
    for (uint32_t i = 0; i < call->dim; ++i) dx2[i] += ((const float*)(const void*)before)[i];
    if (r == r1 - 1) return PLUMB_OK;
  }
  const plumb_status status = HonestBackward(norm, call, r0, r1);
  if (status != PLUMB_OK) return status;
  if (call->dtype == PLUMB_DTYPE_F32) SpoilF32(call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_F64) SpoilF64(call, r0, r1);
  if (skips) memcpy(PLUMB_ROW(char, call->dx2, call->dx2_pitch, r0), before, width);
  return PLUMB_OK;
}

/* The host passes the instance of many.h. */
static plumb_status FillA(const plumb_norm_instance* instance, const plumb_fill_call* call) {
  static uint64_t seed_before;
  ENTER(instance);
  plumb_fill_call mine = *call;
  if (IS(297) && seed_before != 0 && seed_before != call->seed) mine.seed += seed_before;
  seed_before = call->seed;
  const plumb_status status = HonestFill(many->inner, &mine);
  for (int64_t i = 0; i < call->elements && IS(298); ++i)
    call->values[i] += 1 / (float)(call->seed + 1);
  if (IS(299)) *(volatile char*)malloc(16) = 1;
  return status;
}

#define LIST(X) X(0, none) X(290, N2) X(291, N7) X(292, N8) X(293, N1) X(294, N4) X(295, N3) X(296, N8) \
  X(297, M6) X(298, M6) X(299, M6)
MANY(LIST)
