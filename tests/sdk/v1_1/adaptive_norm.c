/* SPDX-License-Identifier: Apache-2.0 */
/* adaptive_norm: y = h (1 + a c) + b c with h = x / sqrt(<x^2> + eps), a norm of two inputs (ABI 1.1):
 * the second, c, changes the gain and the shift of each token, as in adaptive layer norms. The plugin
 * fills a (PLUMB_INIT_FILL), and b is initially 0.
 *
 * With s = 1 / sqrt(<x^2> + eps) and u = dy (1 + a c), the gradient of h:
 *     dx = s (u - h <u h>),  dc = dy (h a + b),  da = sum of dy h c,  db = sum of dy c
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.adaptive_norm");

struct plumb_norm_instance {
  uint32_t dim;
  plumb_tensor_def params[2];
};

#define DEFINE_ROWS(NAME, REAL)                                                                 \
  static REAL Scale##NAME(const REAL* x, uint32_t dim) {                                        \
    REAL sum = 0;                                                                               \
    for (uint32_t i = 0; i < dim; ++i) sum += x[i] * x[i];                                      \
    return 1 / (REAL)sqrt((double)(sum / (REAL)dim) + 1e-5);                                    \
  }                                                                                             \
                                                                                                \
  static void Forward##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) {              \
    const REAL* a = (const REAL*)call->params[0];                                               \
    const REAL* b = (const REAL*)call->params[1];                                               \
    for (int64_t r = r0; r < r1; ++r) {                                                         \
      const REAL* x = PLUMB_CONST_ROW(REAL, call->x, call->x_pitch, r);                         \
      const REAL* c = PLUMB_CONST_ROW(REAL, call->x2, call->x2_pitch, r);                       \
      REAL* y = PLUMB_ROW(REAL, call->y, call->y_pitch, r);                                     \
      const REAL s = Scale##NAME(x, call->dim);                                                 \
      for (uint32_t i = 0; i < call->dim; ++i) y[i] = x[i] * s * (1 + a[i] * c[i]) + b[i] * c[i]; \
    }                                                                                           \
  }                                                                                             \
                                                                                                \
  static void Backward##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) {             \
    const REAL* a = (const REAL*)call->params[0];                                               \
    const REAL* b = (const REAL*)call->params[1];                                               \
    REAL* da = (REAL*)call->dparams[0];                                                         \
    REAL* db = (REAL*)call->dparams[1];                                                         \
    const int add = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                              \
    for (int64_t r = r0; r < r1; ++r) {                                                         \
      const REAL* x = PLUMB_CONST_ROW(REAL, call->x, call->x_pitch, r);                         \
      const REAL* c = PLUMB_CONST_ROW(REAL, call->x2, call->x2_pitch, r);                       \
      const REAL* dy = PLUMB_CONST_ROW(REAL, call->dy, call->dy_pitch, r);                      \
      REAL* dx = PLUMB_ROW(REAL, call->dx, call->dx_pitch, r);                                  \
      REAL* dc = PLUMB_ROW(REAL, call->dx2, call->dx2_pitch, r);                                \
      const REAL s = Scale##NAME(x, call->dim);                                                 \
      REAL mean = 0;                                                                            \
      for (uint32_t i = 0; i < call->dim; ++i) mean += dy[i] * (1 + a[i] * c[i]) * (x[i] * s);  \
      mean /= (REAL)call->dim;                                                                  \
      for (uint32_t i = 0; i < call->dim; ++i) {                                                \
        const REAL h = x[i] * s;                                                                \
        const REAL d = s * (dy[i] * (1 + a[i] * c[i]) - h * mean);                              \
        da[i] += dy[i] * h * c[i];                                                              \
        db[i] += dy[i] * c[i];                                                                  \
        dc[i] = dy[i] * (h * a[i] + b[i]);                                                      \
        dx[i] = add ? dx[i] + d : d;                                                            \
      }                                                                                         \
    }                                                                                           \
  }

DEFINE_ROWS(F32, float)
DEFINE_ROWS(F64, double)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  (void)norm;
  if (call->dtype == PLUMB_F32) return ForwardF32(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_F64) return ForwardF64(call, r0, r1), PLUMB_OK;
  return PLUMB_UNIMPLEMENTED;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  (void)norm;
  if (call->dtype == PLUMB_F32) return BackwardF32(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_F64) return BackwardF64(call, r0, r1), PLUMB_OK;
  return PLUMB_UNIMPLEMENTED;
}

/* Returns small values of either sign, from a hash of the seed and the index. */
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call) {
  (void)norm;
  for (int64_t i = 0; i < call->elements; ++i) {
    const uint64_t bits = (call->seed ^ (uint64_t)i) * UINT64_C(0x9e3779b97f4a7c15);
    call->values[i] = ((float)(bits >> 40) / 16777216.0f - 0.5f) * 0.25f;
  }
  return PLUMB_OK;
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host, (void)values, (void)err, (void)cap;
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  norm->dim = dim;
  for (int k = 0; k < 2; ++k) {
    norm->params[k].name = k == 0 ? "a" : "b";
    norm->params[k].doc = k == 0 ? "What c adds to the gain." : "What c adds to the shift.";
    norm->params[k].ndim = 1;
    norm->params[k].dims[0] = dim;
    norm->params[k].lr_scale = 1;
  }
  norm->params[0].init = PLUMB_INIT_FILL;
  norm->params[0].fill = FillA;
  norm->params[1].init = PLUMB_INIT_ZEROS;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 2;
  out->params = norm->params;
  out->backward_needs = PLUMB_BWD_X | PLUMB_BWD_X2;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .min_host_minor = 1, /* for two inputs, and values that the norm writes */
    .id = "org.example.adaptive_norm",
    .name = "Adaptive RMSNorm",
    .version = "1.0.0",
    .vendor = "example.org",
    .license = "CC0-1.0",
    .doc = "h (1 + a c) + b c, h the RMS norm of the first input and c the second.",
    .flags = PLUMB_NORM_TWO_INPUTS | PLUMB_NORM_NAN_ISOLATED,
    .dtypes = PLUMB_F32 | PLUMB_F64,
    .attr_stride = sizeof(plumb_attr_def),
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

PLUMB_EXPORT const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &kNorm : NULL;
}
