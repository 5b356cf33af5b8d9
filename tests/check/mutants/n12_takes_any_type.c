/* Answers OK to an element type that it does not offer, and does nothing. */
#define BASE_DTYPES (PLUMB_F32 | PLUMB_F64)
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if ((call->dtype & BASE_DTYPES) == 0) return PLUMB_OK;
  return BaseForward(instance, call, r0, r1);
}
