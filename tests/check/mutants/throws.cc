// SPDX-License-Identifier: Apache-2.0
// Throws from forward() if the host wants no error text.
#include <stdexcept>

#define NORM_FORWARD SpoiltForward
#include "norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  // The condition matches only the rows of the check for exceptions, because other checks omit the
  // text as well.
  if (call->err == nullptr && call->rows > 20 && (call->flags & PLUMB_CALL_TRAIN) == 0) {
    throw std::logic_error("err is null");
  }
  return BaseForward(instance, call, r0, r1);
}
