/* dx2 is added to where dx is asked to be. */
#include "plumb/norm_plugin.h"
static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1);
#define Backward(norm, call, r0, r1) HonestBackward(norm, call, r0, r1)
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef Backward

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  if ((call->flags & PLUMB_CALL_DX_ACCUMULATE) == 0 || call->dtype != PLUMB_F32) {
    return HonestBackward(norm, call, r0, r1);
  }
  for (int64_t r = r0; r < r1; ++r) {
    float* dx2 = PLUMB_ROW(float, call->dx2, call->dx2_pitch, r);
    float before[16384];
    for (uint32_t i = 0; i < call->dim && i < 16384; ++i) before[i] = dx2[i];
    const plumb_status status = HonestBackward(norm, call, r, r + 1);
    if (status != PLUMB_OK) return status;
    for (uint32_t i = 0; i < call->dim && i < 16384; ++i) dx2[i] += before[i];
  }
  return PLUMB_OK;
}
