/* Gives a copy of its table the second time. */
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
static plumb_norm_plugin copy;
static int calls;
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  if (index != 0) return NULL;
  copy = base_norm;
  return calls++ == 0 ? &base_norm : &copy;
}
