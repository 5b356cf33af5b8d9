/* fill keeps a table that nobody frees. */
#include "plumb/norm_plugin.h"
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call);
#define FillA(norm, call) HonestFill(norm, call)
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef FillA

static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call) {
  const plumb_status status = HonestFill(norm, call);
  float* volatile table = (float*)malloc((size_t)call->elements * sizeof(float));
  if (table == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  for (int64_t i = 0; i < call->elements; ++i) table[i] = call->values[i] + 1;
  for (int64_t i = 0; i < call->elements; ++i) call->values[i] = table[i] - 1;
  return status;
}
