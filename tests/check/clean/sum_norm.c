/* SPDX-License-Identifier: Apache-2.0 */
/* sum_norm: y = w h + b, h = (z - <z>) / sqrt(<(z - <z>)^2> + eps), z = x + x2: a layer norm of
 * the sum of two inputs, which have equal gradients. */
#include <math.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.sum_norm");

struct plumb_norm_instance {
  plumb_tensor_def params[2];
};

#define AS_IS(value) (value)

/* T: element type, A: accumulate type. backward() computes the two statistics of a row again. */
#define DEFINE_ROWS(NAME, T, A, LOAD, STORE)                                                  \
  static void Measure##NAME(const T* x, const T* x2, uint32_t dim, double* mean, double* r) { \
    double sum = 0, squares = 0;                                                              \
    for (uint32_t i = 0; i < dim; ++i) sum += (double)LOAD(x[i]) + (double)LOAD(x2[i]);       \
    *mean = sum / dim;                                                                        \
    for (uint32_t i = 0; i < dim; ++i) {                                                      \
      const double d = (double)LOAD(x[i]) + (double)LOAD(x2[i]) - *mean;                      \
      squares += d * d;                                                                       \
    }                                                                                         \
    *r = 1 / sqrt(squares / dim + 1e-5);                                                      \
  }                                                                                           \
                                                                                              \
  static void Forward##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) {            \
    const A *w = (const A*)call->params[0], *b = (const A*)call->params[1];                   \
    for (int64_t row = r0; row < r1; ++row) {                                                 \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                           \
      const T* x2 = PLUMB_CONST_ROW(T, call->x2, call->x2_pitch, row);                        \
      T* y = PLUMB_ROW(T, call->y, call->y_pitch, row);                                       \
      double mean, r;                                                                         \
      Measure##NAME(x, x2, call->dim, &mean, &r);                                             \
      for (uint32_t i = 0; i < call->dim; ++i) {                                              \
        const double h = ((double)LOAD(x[i]) + (double)LOAD(x2[i]) - mean) * r;               \
        y[i] = STORE((A)(h * (double)w[i] + (double)b[i]));                                   \
      }                                                                                       \
    }                                                                                         \
  }                                                                                           \
                                                                                              \
  static void Backward##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) {           \
    const A* w = (const A*)call->params[0];                                                   \
    A *dw = (A*)call->dparams[0], *db = (A*)call->dparams[1];                                 \
    const int add = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                            \
    for (int64_t row = r0; row < r1; ++row) {                                                 \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                           \
      const T* x2 = PLUMB_CONST_ROW(T, call->x2, call->x2_pitch, row);                        \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, row);                        \
      T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, row);                                    \
      T* dx2 = PLUMB_ROW(T, call->dx2, call->dx2_pitch, row);                                 \
      double mean, r, of_g = 0, of_gh = 0;                                                    \
      Measure##NAME(x, x2, call->dim, &mean, &r);                                             \
      for (uint32_t i = 0; i < call->dim; ++i) {                                              \
        const double h = ((double)LOAD(x[i]) + (double)LOAD(x2[i]) - mean) * r;               \
        const double g = (double)LOAD(dy[i]) * (double)w[i];                                  \
        of_g += g;                                                                            \
        of_gh += g * h;                                                                       \
      }                                                                                       \
      for (uint32_t i = 0; i < call->dim; ++i) {                                              \
        const double h = ((double)LOAD(x[i]) + (double)LOAD(x2[i]) - mean) * r;               \
        const double d = (double)LOAD(dy[i]), g = d * (double)w[i];                           \
        const A gradient = (A)(r * (g - of_g / call->dim - h * of_gh / call->dim));           \
        dw[i] += (A)(d * h);                                                                  \
        db[i] += (A)d;                                                                        \
        dx2[i] = STORE(gradient);                                                             \
        dx[i] = STORE(add ? (A)LOAD(dx[i]) + gradient : gradient);                            \
      }                                                                                       \
    }                                                                                         \
  }

DEFINE_ROWS(F32, float, float, AS_IS, AS_IS)
DEFINE_ROWS(Bf16, plumb_bf16, float, plumb_bf16_to_float, plumb_bf16_from_float)
DEFINE_ROWS(F64, double, double, AS_IS, AS_IS)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  (void)norm;
  if (call->dtype == PLUMB_DTYPE_F32) return ForwardF32(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return ForwardBf16(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return ForwardF64(call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  (void)norm;
  if (call->dtype == PLUMB_DTYPE_F32) return BackwardF32(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return BackwardBf16(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return BackwardF64(call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host, (void)values, (void)err, (void)cap;
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  for (int k = 0; k < 2; ++k) {
    norm->params[k].name = k == 0 ? "weight" : "bias";
    norm->params[k].doc = k == 0 ? "The gain w." : "The shift b.";
    norm->params[k].ndim = 1;
    norm->params[k].dims[0] = dim;
    norm->params[k].init = k == 0 ? PLUMB_INIT_ONES : PLUMB_INIT_ZEROS;
    norm->params[k].lr_scale = 1;
  }
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 2;
  out->params = norm->params;
  out->backward_needs = PLUMB_BACKWARD_READS_X | PLUMB_BACKWARD_READS_X2;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .min_host_minor = 1,
    .id = "org.example.sum_norm",
    .name = "LayerNorm of a sum",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "Layer norm of x + x2.",
    .flags = PLUMB_NORM_TWO_INPUTS | PLUMB_NORM_NAN_ISOLATED | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
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
