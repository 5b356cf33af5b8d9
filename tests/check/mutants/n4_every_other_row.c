/* Every second row of a range is summed from behind, as if rows were taken in pairs: a row's last
 * bit depends on where its range begins. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"
#include "sums_from_behind.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_status status = BaseForward(instance, call, r0, r0); /* of the element type */
  for (int64_t row = r0; row < r1 && status == PLUMB_OK; ++row) {
    status = (row - r0) % 2 == 0 ? BaseForward(instance, call, row, row + 1)
                                 : ForwardFromBehind(instance, call, row, row + 1);
  }
  return status;
}
