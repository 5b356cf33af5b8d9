/* The rows' shares of the gain's gradient are added in the order that the clock says, as if it were
 * the one in which threads happened to finish. In calls of more rows than one thread would take. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

#include <time.h>

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  struct timespec now;
  plumb_status status = BaseBackward(instance, call, r0, r0); /* of the element type */
  if (call->rows <= 32) return BaseBackward(instance, call, r0, r1);
  timespec_get(&now, TIME_UTC);
  if (((uint32_t)now.tv_nsec * 2654435761u) >> 31 != 0) return BaseBackward(instance, call, r0, r1);
  for (int64_t row = r1; row > r0 && status == PLUMB_OK; --row) {
    status = BaseBackward(instance, call, row - 1, row);
  }
  return status;
}
