/* A factor on the learning rate that is not a number. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"
static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status == PLUMB_OK) (*out)->weight.lr_scale = NAN;
  return status;
}
