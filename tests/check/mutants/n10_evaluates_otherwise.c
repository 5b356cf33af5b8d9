/* Evaluates with another rounding than it trains with. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_F32 || (call->flags & PLUMB_CALL_TRAIN) != 0) {
    return status;
  }
  for (int64_t r = r0; r < r1; ++r) {
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    y[0] = nextafterf(y[0], 2 * y[0]);
  }
  return status;
}
