/* Leaves a note in the instance, which other threads read. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  volatile uint32_t* note = &((plumb_norm_instance*)instance)->weight.reserved;
  *note = (uint32_t)call->rows;
  return BaseBackward(instance, call, r0, r1);
}
