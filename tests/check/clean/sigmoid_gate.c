/* SPDX-License-Identifier: Apache-2.0 */
/* Correct: y = g x s, s = sigmoid(mean x), which may be far below the smallest float. With t = sum
 * dy g x: dx = dy g s + t s (1 - s) / dim, dg += dy x s. */
#include <math.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.sigmoid_gate");

struct plumb_norm_instance {
  plumb_tensor_def gain;
};

static double Sigmoid(double v) { return v >= 0 ? 1 / (1 + exp(-v)) : exp(v) / (1 + exp(v)); }

#define KERNELS(NAME, T, A, LOAD, STORE)                                                         \
  static double Gate##NAME(const plumb_norm_call* c, int64_t row) {                              \
    const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                                      \
    double sum = 0;                                                                              \
    for (uint32_t i = 0; i < c->dim; ++i) sum += (double)LOAD(x[i]);                             \
    return Sigmoid(sum / c->dim);                                                                \
  }                                                                                              \
  static void Forward##NAME(const plumb_norm_call* c, int64_t r0, int64_t r1) {                  \
    const A* g = (const A*)c->params[0];                                                         \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                                    \
      T* y = PLUMB_ROW(T, c->y, c->y_pitch, row);                                                \
      const double s = Gate##NAME(c, row);                                                       \
      for (uint32_t i = 0; i < c->dim; ++i) y[i] = STORE((double)g[i] * (double)LOAD(x[i]) * s); \
    }                                                                                            \
  }                                                                                              \
  static void Backward##NAME(const plumb_norm_call* c, int64_t r0, int64_t r1) {                 \
    const A* g = (const A*)c->params[0];                                                         \
    A* dg = (A*)c->dparams[0];                                                                   \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                                    \
      const T* dy = PLUMB_CONST_ROW(T, c->dy, c->dy_pitch, row);                                 \
      T* dx = PLUMB_ROW(T, c->dx, c->dx_pitch, row);                                             \
      const double s = Gate##NAME(c, row);                                                       \
      double t = 0;                                                                              \
      for (uint32_t i = 0; i < c->dim; ++i)                                                      \
        t += (double)LOAD(dy[i]) * (double)g[i] * (double)LOAD(x[i]);                            \
      for (uint32_t i = 0; i < c->dim; ++i) {                                                    \
        const double d = (double)LOAD(dy[i]);                                                    \
        A more = (A)(d * (double)g[i] * s + t * s * (1 - s) / c->dim);                           \
        dg[i] += (A)(d * (double)LOAD(x[i]) * s);                                                \
        if (c->flags & PLUMB_CALL_DX_ACCUMULATE) more += (A)LOAD(dx[i]);                         \
        dx[i] = STORE(more);                                                                     \
      }                                                                                          \
    }                                                                                            \
  }
#define AS_IS(v) (v)
#define TO_F32(v) ((float)(v))
#define TO_BF16(v) plumb_bf16_from_float((float)(v))
KERNELS(F32, float, float, AS_IS, TO_F32)
KERNELS(Bf16, plumb_bf16, float, plumb_bf16_to_float, TO_BF16)
KERNELS(F64, double, double, AS_IS, AS_IS)

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
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  (void)host, (void)values, (void)err, (void)cap;
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->gain.name = "gain";
  norm->gain.doc = "The gain.";
  norm->gain.ndim = 1;
  norm->gain.dims[0] = dim;
  norm->gain.init = PLUMB_INIT_ONES;
  norm->gain.lr_scale = 1;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->gain;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "org.example.sigmoid_gate",
    .name = "Sigmoid gate",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "y = g x sigmoid(mean x).",
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    .attr_stride = sizeof(plumb_attr_def),
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
