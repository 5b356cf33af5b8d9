/* Positions are read as those of rows, in a call of several rows a token too. */
#include "call_copy.h"
#include "graceful_parts.h"

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  if (!PLUMB_HAS(plumb_norm_call, call, context) || call->context == NULL) {
    return HonestForward(norm, call, r0, r1);
  }
  plumb_norm_context context = *call->context;
  plumb_norm_call mine = CopyOfCall(call);
  context.rows_per_token = 1;
  mine.context = &context;
  return HonestForward(norm, &mine, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return HonestBackward(norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  return HonestLayout(norm, out);
}
