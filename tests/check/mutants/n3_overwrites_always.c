/* Knows nothing of PLUMB_CALL_DX_ACCUMULATE. */
#define BASE_BACKWARD SpoiltBackward
#include "call_copy.h"
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  plumb_norm_call spoilt = CopyOfCall(call);
  spoilt.flags &= ~(uint32_t)PLUMB_CALL_DX_ACCUMULATE;
  return BaseBackward(instance, &spoilt, r0, r1);
}
