/* For one dim, what an instance needs depends on how many there have been. */
#define BASE_LAYOUT SpoiltLayout
#include "base_norm.h"
static plumb_status SpoiltLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  static size_t calls;
  const plumb_status status = BaseLayout(instance, out);
  if (instance->dim == 3) out->scratch_bytes = calls++ % 2 * 64;
  return status;
}
