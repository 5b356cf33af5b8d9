/* Has another order of additions for rows that are said to be aligned. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"
#include "sums_from_behind.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->flags & PLUMB_CALL_ALIGNED64) return ForwardFromBehind(instance, call, r0, r1);
  return BaseForward(instance, call, r0, r1);
}
