/* Has every extension of whatever name. */
#define BASE_GET_EXTENSION SpoiltGetExtension
#include "base_norm.h"
static const void* SpoiltGetExtension(const char* id) {
  return strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? NULL : &base_norm;
}
