/* Forgets a block of each instance. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  void* volatile block = malloc(16);
  if (block == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status != PLUMB_OK) free(block);
  return status;
}
