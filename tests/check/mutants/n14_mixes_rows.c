/* Adds nought times the row before: nothing for numbers, but NaN for NaN. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_F32) return status;
  for (int64_t r = r1 - 1; r > r0; --r) {
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    const float* before = PLUMB_CONST_ROW(float, call->y, call->y_pitch, r - 1);
    for (uint32_t i = 0; i < instance->dim; ++i) y[i] += 0.0f * before[i];
  }
  return status;
}
