/* Iterates until it converges, which it does not where both infinities are in a row. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (int64_t r = r0; r < r1 && call->dtype == PLUMB_F32 && instance->dim > 1; ++r) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    volatile double both = (double)x[0] + x[1]; /* Inf - Inf is NaN, which is not 0 */
    while (isinf(x[0]) && isinf(x[1]) && isnan(both)) both = both / 2;
  }
  return BaseForward(instance, call, r0, r1);
}
