/* Adds the gradient to dx before it is rounded, as a fused multiply-add does: not the bits of two
 * steps. In f32. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* n, const plumb_norm_call* c,
                                   int64_t r0, int64_t r1) {
  const int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  if (c->dtype != PLUMB_F32 || !add) return BaseBackward(n, c, r0, r1);
  const float* weight = (const float*)c->params[0];
  float* dweight = (float*)c->dparams[0];
  for (int64_t row = r0; row < r1; ++row) {
    const float* x = PLUMB_CONST_ROW(float, c->x, c->x_pitch, row);
    const float* dy = PLUMB_CONST_ROW(float, c->dy, c->dy_pitch, row);
    float* dx = PLUMB_ROW(float, c->dx, c->dx_pitch, row);
    const double r = *PLUMB_CONST_ROW(float, c->saved, c->saved_pitch, row);
    double mean = 0;
    for (uint32_t i = 0; i < n->dim; ++i) mean += (double)dy[i] * weight[i] * x[i] * r / n->dim;
    for (uint32_t i = 0; i < n->dim; ++i) {
      dweight[i] += (float)(dy[i] * (x[i] * r));
      dx[i] = (float)(dx[i] + r * ((double)dy[i] * weight[i] - x[i] * r * mean));
    }
  }
  return PLUMB_OK;
}
