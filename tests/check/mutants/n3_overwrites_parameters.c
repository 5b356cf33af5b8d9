/* Puts the gradient of the gain where it should add it. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  const size_t size = call->dtype == PLUMB_F64 ? sizeof(double) : sizeof(float);
  if (r0 < r1) memset(call->dparams[0], 0, instance->dim * size);
  return BaseBackward(instance, call, r0, r1);
}
