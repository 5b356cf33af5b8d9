/* Leaves the last element of a row of 31 out, as vector code does that is wrong for one remainder.
 */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (instance->dim != 31 || call->dtype != PLUMB_F32) return status;
  for (int64_t row = r0; row < r1; ++row) {
    PLUMB_ROW(float, call->y, call->y_pitch, row)[30] = 0;
  }
  return status;
}
