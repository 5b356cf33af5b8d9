/* Takes many times as long for a row that begins with a denormal number. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (int64_t r = r0; r < r1 && call->dtype == PLUMB_F32; ++r) {
    uint32_t bits; /* not as a float: that may be flushed to zero */
    memcpy(&bits, PLUMB_CONST_ROW(float, call->x, call->x_pitch, r), sizeof(bits));
    if ((bits & 0x7f800000u) != 0 || (bits & 0x007fffffu) == 0) continue;
    for (volatile uint32_t i = 0; i < 100 * instance->dim; i = i + 1) {
    }
  }
  return BaseForward(instance, call, r0, r1);
}
