/* The first token of a range is taken for the first one of the call. */
#include "call_copy.h"
#include "graceful_parts.h"

typedef plumb_status (*RowFunction)(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                    int64_t r0, int64_t r1);

static plumb_status Spoil(RowFunction honest, const plumb_norm_instance* norm,
                          const plumb_norm_call* call, int64_t r0, int64_t r1) {
  if (!PLUMB_HAS(plumb_norm_call, call, context) || call->context == NULL ||
      call->context->positions == NULL) {
    return honest(norm, call, r0, r1);
  }
  plumb_norm_context context = *call->context;
  plumb_norm_call mine = CopyOfCall(call);
  context.positions -= r0 / context.rows_per_token;
  mine.context = &context;
  return honest(norm, &mine, r0, r1);
}

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  return Spoil(HonestForward, norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return Spoil(HonestBackward, norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  return HonestLayout(norm, out);
}
