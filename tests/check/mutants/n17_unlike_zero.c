/* Lets the smallest denormal number weigh as much as any other, where denormals are not flushed. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_F32) return status;
  for (int64_t r = r0; r < r1; ++r) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    for (uint32_t i = 0; i < instance->dim; ++i) {
      if (x[i] != 0 && fabsf(x[i]) < 1e-38f) y[i] = 1;
    }
  }
  return PLUMB_OK;
}
