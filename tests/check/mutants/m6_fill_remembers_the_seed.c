/* fill goes on from the seed of the call before: the same seed gives other values the second time.
 */
#include "plumb/norm_plugin.h"
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call);
#define FillA(norm, call) HonestFill(norm, call)
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef FillA

static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call) {
  static uint64_t before;
  plumb_fill_call mine = *call;
  if (before != 0 && before != call->seed) mine.seed += before;
  before = call->seed;
  return HonestFill(norm, &mine);
}
