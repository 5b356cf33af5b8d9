/* Keeps the weights of the call that runs in a global. Threads that share a call do not notice; two
 * calls do. Nothing is left in it afterwards. */
#define BASE_FORWARD SpoiltForward
#include "call_copy.h"
#include "base_norm.h"

#include <stdatomic.h>

static _Atomic(const void*) current_weights;
static atomic_int running;

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_norm_call spoilt = CopyOfCall(call);
  plumb_status status = BaseForward(instance, call, r0, r0); /* of the element type */
  const void* params[1];
  spoilt.params = params;
  ++running;
  current_weights = call->params[0];
  for (int64_t row = r0; row < r1 && status == PLUMB_OK; ++row) {
    params[0] = current_weights;
    if (params[0] == NULL) params[0] = call->params[0];
    status = BaseForward(instance, &spoilt, row, row + 1);
  }
  if (--running == 0) current_weights = NULL;
  return status;
}
