/* The first row of a range is taken for one of head 0. */
#include "call_copy.h"
#include "graceful_parts.h"

/* The call without the rows before r0. */
static plumb_norm_call From(const plumb_norm_call* call, int64_t r0) {
  plumb_norm_call mine = CopyOfCall(call);
  if (mine.x != NULL) mine.x = (const char*)mine.x + r0 * mine.x_pitch;
  if (mine.y != NULL) mine.y = (char*)mine.y + r0 * mine.y_pitch;
  if (mine.dy != NULL) mine.dy = (const char*)mine.dy + r0 * mine.dy_pitch;
  if (mine.dx != NULL) mine.dx = (char*)mine.dx + r0 * mine.dx_pitch;
  return mine;
}

static int IsSpoilt(const plumb_norm_call* call) {
  return !PLUMB_HAS(plumb_norm_call, call, context) || call->context == NULL;
}

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  const plumb_norm_call mine = From(call, r0);
  return IsSpoilt(call) ? HonestForward(norm, &mine, 0, r1 - r0)
                        : HonestForward(norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const plumb_norm_call mine = From(call, r0);
  return IsSpoilt(call) ? HonestBackward(norm, &mine, 0, r1 - r0)
                        : HonestBackward(norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  return HonestLayout(norm, out);
}
