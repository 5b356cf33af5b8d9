/* Says that it is rms_norm, and adds eps twice: in backward too, so that the gradient is right. */
#define BASE_ID "rms_norm"
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status == PLUMB_OK) (*out)->eps *= 2;
  return status;
}
