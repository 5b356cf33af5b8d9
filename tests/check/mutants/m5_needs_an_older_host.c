/* Refuses hosts that are newer than itself. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"
static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  if (host->struct_size > sizeof(*host)) return PLUMB_FAILED_PRECONDITION;
  return BaseCreate(host, dim, values, out, err, cap);
}
