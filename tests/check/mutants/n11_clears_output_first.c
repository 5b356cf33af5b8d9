/* Clears y before it reads x, and says that y may be x. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_F32) {
    for (int64_t r = r0; r < r1; ++r) {
      memset(PLUMB_ROW(float, call->y, call->y_pitch, r), 0, sizeof(float) * instance->dim);
    }
  }
  return BaseForward(instance, call, r0, r1);
}
