/* Where x2 is x, dx gets the gradients of both inputs, and dx2 zeros. */
#include "plumb/norm_plugin.h"
static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1);
#define Backward(norm, call, r0, r1) HonestBackward(norm, call, r0, r1)
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef Backward

#define MOVE_ROWS(NAME, REAL)                                                   \
  static void Move##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) { \
    for (int64_t r = r0; r < r1; ++r) {                                         \
      REAL* dx = PLUMB_ROW(REAL, call->dx, call->dx_pitch, r);                  \
      REAL* dx2 = PLUMB_ROW(REAL, call->dx2, call->dx2_pitch, r);               \
      for (uint32_t i = 0; i < call->dim; ++i) {                                \
        dx[i] += dx2[i];                                                        \
        dx2[i] = 0;                                                             \
      }                                                                         \
    }                                                                           \
  }
MOVE_ROWS(F32, float)
MOVE_ROWS(F64, double)

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const plumb_status status = HonestBackward(norm, call, r0, r1);
  if (status != PLUMB_OK || call->x2 != call->x) return status;
  if (call->dtype == PLUMB_F32) MoveF32(call, r0, r1);
  if (call->dtype == PLUMB_F64) MoveF64(call, r0, r1);
  return PLUMB_OK;
}
