/* Numbers for a whole call, which only a cross-row norm may have. */
#define BASE_LAYOUT SpoiltLayout
#include "base_norm.h"
static plumb_status SpoiltLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  const plumb_status status = BaseLayout(instance, out);
  out->partial_elems = 3;
  return status;
}
