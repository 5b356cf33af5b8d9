/* fill is not finite where the seed is the largest one. */
#include "plumb/norm_plugin.h"
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call);
#define FillA(norm, call) HonestFill(norm, call)
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef FillA

static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call) {
  const plumb_status status = HonestFill(norm, call);
  const float scale = 1 / (float)(call->seed + 1);
  for (int64_t i = 0; i < call->elements; ++i) call->values[i] += scale;
  return status;
}
