/* Reads the element behind each row, and makes no use of it. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const size_t size = call->dtype == PLUMB_F64 ? 8 : call->dtype == PLUMB_F32 ? 4 : 2;
  for (int64_t row = r0; row < r1; ++row) {
    (void)*(const volatile char*)(PLUMB_CONST_ROW(char, call->x, call->x_pitch, row) +
                                  instance->dim * size);
  }
  return BaseForward(instance, call, r0, r1);
}
