/* Does not look whether there was memory. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  volatile char* block;
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status != PLUMB_OK) return status;
  block = (volatile char*)malloc(16);
  block[0] = 1;
  free((void*)block);
  return status;
}
