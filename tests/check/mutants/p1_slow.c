/* Idles between any two numbers. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (volatile int64_t i = 0; i < 2 * (r1 - r0) * instance->dim; i = i + 1) {
  }
  return BaseForward(instance, call, r0, r1);
}
