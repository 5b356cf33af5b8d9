/* Writes into fields of the host's layout that did not exist when it was compiled. */
#define BASE_LAYOUT SpoiltLayout
#include "base_norm.h"
static plumb_status SpoiltLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  const uint32_t size = out->struct_size;
  memset(out, 0, size);
  out->struct_size = size;
  return BaseLayout(instance, out);
}
