/* Keeps its first block when there is no memory for the second. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  plumb_norm_instance* instance = NULL;
  void* volatile block;
  const plumb_status status = BaseCreate(host, dim, values, &instance, err, cap);
  if (status != PLUMB_OK) return status;
  block = malloc(16);
  if (block == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  free(block);
  *out = instance;
  return PLUMB_OK;
}
