/* Works with the host that it was compiled for, and with no other. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"
static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->struct_size != sizeof(plumb_norm_call)) return PLUMB_INVALID_ARGUMENT;
  return BaseForward(instance, call, r0, r1);
}
