/* SPDX-License-Identifier: Apache-2.0 */
/* graceful_norm: y = g (1 + t log(1 + p)) x / sqrt(<x^2> + eps), with the position p of each token. It uses
 * additions of ABI 1.1 and requires none of them: on a host of 1.0 the heads share the gain g, and the
 * unknown position is treated as p = 0.
 *
 * With s = 1 / sqrt(<x^2> + eps), h = x s, l = log(1 + p), u = dy g (1 + t l), the gradient of h:
 *     dx = s (u - h <u h>),  dg = sum of dy (1 + t l) h,  dt = sum over rows of l sum(dy g h)
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.graceful_norm");

struct plumb_norm_instance {
  uint32_t dim;
  uint32_t heads; /* 0: all rows share the gain */
  plumb_tensor_def params[2];
};

static double LogOf(const plumb_norm_call* call, int64_t r) {
  if (!PLUMB_HAS(plumb_norm_call, call, context) || call->context == NULL) return 0;
  if (call->context->positions == NULL) return 0;
  return log1p(call->context->positions[r / call->context->rows_per_token]);
}

#define DEFINE_ROWS(NAME, REAL)                                                                 \
  static REAL Scale##NAME(const REAL* x, uint32_t dim) {                                        \
    REAL sum = 0;                                                                               \
    for (uint32_t i = 0; i < dim; ++i) sum += x[i] * x[i];                                      \
    return 1 / (REAL)sqrt((double)(sum / (REAL)dim) + 1e-5);                                    \
  }                                                                                             \
                                                                                                \
  static void Forward##NAME(const plumb_norm_instance* norm, const plumb_norm_call* call,       \
                            int64_t r0, int64_t r1) {                                           \
    const REAL t = *(const REAL*)call->params[1];                                               \
    for (int64_t r = r0; r < r1; ++r) {                                                         \
      const int64_t head = norm->heads == 0 ? 0 : r % norm->heads;                              \
      const REAL* g = (const REAL*)call->params[0] + head * call->dim;                          \
      const REAL* x = PLUMB_CONST_ROW(REAL, call->x, call->x_pitch, r);                         \
      REAL* y = PLUMB_ROW(REAL, call->y, call->y_pitch, r);                                     \
      const REAL s = Scale##NAME(x, call->dim), w = 1 + t * (REAL)LogOf(call, r);               \
      for (uint32_t i = 0; i < call->dim; ++i) y[i] = g[i] * w * (x[i] * s);                    \
    }                                                                                           \
  }                                                                                             \
                                                                                                \
  static void Backward##NAME(const plumb_norm_instance* norm, const plumb_norm_call* call,      \
                             int64_t r0, int64_t r1) {                                          \
    const REAL t = *(const REAL*)call->params[1];                                               \
    REAL* dt = (REAL*)call->dparams[1];                                                         \
    const int add = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                              \
    for (int64_t r = r0; r < r1; ++r) {                                                         \
      const int64_t head = norm->heads == 0 ? 0 : r % norm->heads;                              \
      const REAL* g = (const REAL*)call->params[0] + head * call->dim;                          \
      REAL* dg = (REAL*)call->dparams[0] + head * call->dim;                                    \
      const REAL* x = PLUMB_CONST_ROW(REAL, call->x, call->x_pitch, r);                         \
      const REAL* dy = PLUMB_CONST_ROW(REAL, call->dy, call->dy_pitch, r);                      \
      REAL* dx = PLUMB_ROW(REAL, call->dx, call->dx_pitch, r);                                  \
      const REAL s = Scale##NAME(x, call->dim), l = (REAL)LogOf(call, r), w = 1 + t * l;        \
      REAL sum = 0;                                                                             \
      for (uint32_t i = 0; i < call->dim; ++i) sum += dy[i] * g[i] * (x[i] * s);                \
      *dt += l * sum;                                                                           \
      const REAL mean = w * sum / (REAL)call->dim;                                              \
      for (uint32_t i = 0; i < call->dim; ++i) {                                                \
        const REAL h = x[i] * s, d = s * (dy[i] * g[i] * w - h * mean);                         \
        dg[i] += dy[i] * w * h;                                                                 \
        dx[i] = add ? dx[i] + d : d;                                                            \
      }                                                                                         \
    }                                                                                           \
  }

DEFINE_ROWS(F32, float)
DEFINE_ROWS(F64, double)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_F32) return ForwardF32(norm, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_F64) return ForwardF64(norm, call, r0, r1), PLUMB_OK;
  return PLUMB_UNIMPLEMENTED;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_F32) return BackwardF32(norm, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_F64) return BackwardF64(norm, call, r0, r1), PLUMB_OK;
  return PLUMB_UNIMPLEMENTED;
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)values, (void)err, (void)cap;
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  norm->dim = dim;
  norm->heads = PLUMB_HAS(plumb_host, host, heads) ? host->heads : 0;
  plumb_tensor_def* gain = &norm->params[0];
  gain->name = "gain";
  gain->doc = "The gain g, of each head where the host tells of heads.";
  gain->ndim = norm->heads == 0 ? 1 : 2;
  gain->dims[0] = norm->heads == 0 ? dim : norm->heads;
  gain->dims[1] = norm->heads == 0 ? 0 : dim;
  gain->init = PLUMB_INIT_ONES;
  gain->lr_scale = 1;
  norm->params[1].name = "t";
  norm->params[1].doc = "How rows grow along a sequence.";
  norm->params[1].init = PLUMB_INIT_CONST;
  norm->params[1].init_a = 0.125;
  norm->params[1].lr_scale = 1;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 2;
  out->params = norm->params;
  out->backward_needs = PLUMB_BWD_X;
  if (PLUMB_HAS(plumb_norm_layout, out, heads)) out->heads = norm->heads;
  if (PLUMB_HAS(plumb_norm_layout, out, context_wants)) {
    out->context_wants = PLUMB_CONTEXT_POSITIONS;
  }
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .min_host_minor = 0, /* 1.1 is not required */
    .id = "org.example.graceful_norm",
    .name = "Positional RMSNorm",
    .version = "1.0.0",
    .vendor = "example.org",
    .license = "CC0-1.0",
    .doc = "g (1 + t log(1 + p)) x / sqrt(<x^2> + eps), p the position of the token.",
    .flags = PLUMB_NORM_NAN_ISOLATED,
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
