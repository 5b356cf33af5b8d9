/* Writes one element too many where there is space behind a row. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  const size_t size = call->dtype == PLUMB_F64 ? 8 : call->dtype == PLUMB_F32 ? 4 : 2;
  const size_t used = instance->dim * size;
  for (int64_t row = r0; row < r1 && row + 1 < call->rows; ++row) {
    if ((size_t)call->dx_pitch < used + size) continue;
    memset(PLUMB_ROW(char, call->dx, call->dx_pitch, row) + used, 0, size);
  }
  return BaseBackward(instance, call, r0, r1);
}
