/* Idles before the first row of each call. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (volatile int i = 0; r0 < r1 && i < 1000000; i = i + 1) {
  }
  return BaseForward(instance, call, r0, r1);
}
