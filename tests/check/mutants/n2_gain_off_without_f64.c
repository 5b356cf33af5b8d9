/* Offers no f64 to be checked in, and forgets the last element of the row in the gradient. */
#define BASE_DTYPES PLUMB_F32
#define BASE_FORWARD SpoiltForward
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->dtype != PLUMB_F32) return PLUMB_UNIMPLEMENTED;
  return BaseForward(instance, call, r0, r1);
}

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  float* last = (float*)call->dparams[0] + instance->dim - 1;
  const float before = *last;
  plumb_status status;
  if (call->dtype != PLUMB_F32) return PLUMB_UNIMPLEMENTED;
  status = BaseBackward(instance, call, r0, r1);
  *last = before;
  return status;
}
