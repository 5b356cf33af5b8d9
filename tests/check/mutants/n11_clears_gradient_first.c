/* Clears dx before it reads dy, and says that dx may be dy. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_F32 && (call->flags & PLUMB_CALL_DX_ACCUMULATE) == 0) {
    for (int64_t r = r0; r < r1; ++r) {
      memset(PLUMB_ROW(float, call->dx, call->dx_pitch, r), 0, sizeof(float) * instance->dim);
    }
  }
  return BaseBackward(instance, call, r0, r1);
}
