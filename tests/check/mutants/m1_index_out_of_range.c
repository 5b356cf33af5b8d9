/* Takes large numbers for small ones. */
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return (index & 0xff) == 0 || index == 1000 ? &base_norm : NULL;
}
