/* SPDX-License-Identifier: Apache-2.0 */
/* Offers the fused residual sum, and forgets the gradient that bypasses the norm. */
#define BASE_DTYPES PLUMB_DTYPE_F32
#define BASE_FORWARD SpoiltForward
#define BASE_BACKWARD SpoiltBackward
#define BASE_GET_EXTENSION SpoiltGetExtension
#include "call_copy.h"
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  return BaseForward(instance, call, r0, r1);
}

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  return BaseBackward(instance, call, r0, r1);
}

static plumb_status ResidualForward(const plumb_norm_instance* instance,
                                    const plumb_norm_call* call,
                                    const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  plumb_norm_call of_sum = CopyOfCall(call);
  for (int64_t row = r0; row < r1; ++row) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, row);
    const float* res = PLUMB_CONST_ROW(float, residual->res, residual->res_pitch, row);
    float* sum = PLUMB_ROW(float, residual->sum, residual->sum_pitch, row);
    for (uint32_t i = 0; i < instance->dim; ++i) sum[i] = x[i] + res[i];
  }
  of_sum.x = residual->sum;
  of_sum.x_pitch = residual->sum_pitch;
  return SpoiltForward(instance, &of_sum, r0, r1);
}

static plumb_status ResidualBackward(const plumb_norm_instance* instance,
                                     const plumb_norm_call* call,
                                     const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  (void)residual;
  return SpoiltBackward(instance, call, r0, r1);
}

static const plumb_norm_residual residual_extension = {sizeof(plumb_norm_residual), 0,
                                                       ResidualForward, ResidualBackward};

static const void* SpoiltGetExtension(const char* id) {
  return strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &residual_extension : NULL;
}
