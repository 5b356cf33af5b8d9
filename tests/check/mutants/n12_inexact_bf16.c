/* Is five percent off in bf16. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_BF16) return status;
  for (int64_t r = r0; r < r1; ++r) {
    plumb_bf16* y = PLUMB_ROW(plumb_bf16, call->y, call->y_pitch, r);
    for (uint32_t i = 0; i < instance->dim; ++i) {
      y[i] = plumb_bf16_from_float(plumb_bf16_to_float(y[i]) * 1.05f);
    }
  }
  return status;
}
