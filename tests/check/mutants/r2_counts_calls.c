/* Counts its calls in a static variable. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static volatile int calls;

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  calls = calls + 1;
  return BaseForward(instance, call, r0, r1);
}
