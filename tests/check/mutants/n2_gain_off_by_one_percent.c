/* The gradient of the gain is one percent too large. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

#define ADD_ONE_PERCENT(NAME, T, A, LOAD)                                                \
  static void AddOnePercent##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) { \
    A* dweight = (A*)call->dparams[0];                                                   \
    for (int64_t row = r0; row < r1; ++row) {                                            \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                      \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, row);                   \
      const double r = *PLUMB_CONST_ROW(A, call->saved, call->saved_pitch, row);         \
      for (uint32_t i = 0; i < call->dim; ++i)                                           \
        dweight[i] += (A)(0.01 * LOAD(dy[i]) * LOAD(x[i]) * r);                          \
    }                                                                                    \
  }
ADD_ONE_PERCENT(F32, float, float, BaseFromF32)
ADD_ONE_PERCENT(Bf16, plumb_bf16, float, BaseFromBf16)
ADD_ONE_PERCENT(F64, double, double, BaseDouble)

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  /* First: dx may be dy, and is then gone. */
  if (call->dtype == PLUMB_F32) AddOnePercentF32(call, r0, r1);
  if (call->dtype == PLUMB_BF16) AddOnePercentBf16(call, r0, r1);
  if (call->dtype == PLUMB_F64) AddOnePercentF64(call, r0, r1);
  return BaseBackward(instance, call, r0, r1);
}
