/* Keeps a row of zeros from a division by zero with a constant that is itself zero where denormals
 * are flushed. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const volatile float least = 1e-40f;
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_F32) return status;
  for (int64_t r = r0; r < r1; ++r) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    float largest = least;
    for (uint32_t i = 0; i < instance->dim; ++i) largest = fmaxf(largest, fabsf(x[i]));
    for (uint32_t i = 0; i < instance->dim; ++i) y[i] *= largest / largest;
  }
  return PLUMB_OK;
}
