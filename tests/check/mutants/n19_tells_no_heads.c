/* There is a gain of each head, and the layout says that all rows are alike. */
#include "graceful_parts.h"

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  return HonestForward(norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return HonestBackward(norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  const plumb_status status = HonestLayout(norm, out);
  if (PLUMB_HAS(plumb_norm_layout, out, heads)) out->heads = 0;
  return status;
}
