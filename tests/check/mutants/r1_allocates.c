/* Allocates in forward(), and frees what it allocated. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  void* volatile block = malloc(64); /* volatile: a compiler may drop the pair otherwise */
  free(block);
  return BaseForward(instance, call, r0, r1);
}
