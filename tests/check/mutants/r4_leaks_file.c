/* Opens a file for each instance, and closes none. */
#include <fcntl.h>
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status == PLUMB_OK && open("/dev/null", O_RDONLY) < 0) return status;
  return status;
}
