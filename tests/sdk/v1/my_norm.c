/* SPDX-License-Identifier: Apache-2.0 */
/* my_norm: y = g x / (mean|x| + eps), a norm by the mean absolute value of the row, with a learned
 * gain g. It is written to be changed: the mathematics is in ForwardRow and BackwardRow, what may
 * be configured is in kAttributes, what is learned is in Create.
 *
 * With <a> the mean of a over the row, s = 1 / (<|x|> + eps), h = x s:
 *     y = g h
 * Let u = dy g, the gradient of h. As ds/dx_j = -s^2 sign(x_j) / dim,
 *     dx_j = s u_j + sum_i(u_i x_i) ds/dx_j = s (u_j - sign(x_j) <u h>)
 *     dgain = sum over rows of dy h
 * forward() keeps s for each row; backward() reads x again.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.my_norm");

struct plumb_norm_instance {
  uint32_t dim;
  double eps;
  plumb_tensor_def gain;
};

/* -- The mathematics ----------------------------------------------------------------------------
 *
 * The same text for every element type: ELEMENT is what lies in memory, REAL what is computed with
 * (and what params, dparams and saved are made of), LOAD and STORE go from one to the other.
 *
 * Sums go to LANES partial sums side by side, so that a compiler may use vector instructions
 * without being allowed to reorder additions: the order depends on dim alone, and a row gives the
 * same bits wherever it lies. */

enum { LANES = 16 };

#define DEFINE_ROWS(NAME, ELEMENT, REAL, FABS, LOAD, STORE)                                      \
  static REAL Total##NAME(const REAL sum[LANES]) {                                               \
    REAL total = 0;                                                                              \
    for (int k = 0; k < LANES; ++k) total += sum[k];                                             \
    return total;                                                                                \
  }                                                                                              \
                                                                                                 \
  /* y = gain x s; returns s. */                                                                 \
  static REAL ForwardRow##NAME(const ELEMENT* x, const REAL* gain, REAL eps, uint32_t dim,       \
                               ELEMENT* y) {                                                     \
    REAL sum[LANES] = {0};                                                                       \
    uint32_t i = 0;                                                                              \
    for (; i + LANES <= dim; i += LANES) {                                                       \
      for (uint32_t k = 0; k < LANES; ++k) sum[k] += FABS(LOAD(x[i + k]));                       \
    }                                                                                            \
    for (uint32_t k = 0; i + k < dim; ++k) sum[k] += FABS(LOAD(x[i + k]));                       \
    const REAL s = 1 / (Total##NAME(sum) / (REAL)dim + eps);                                     \
    for (i = 0; i < dim; ++i) y[i] = STORE(LOAD(x[i]) * s * gain[i]);                            \
    return s;                                                                                    \
  }                                                                                              \
                                                                                                 \
  static REAL Gradient##NAME(REAL x, REAL dy, REAL gain, REAL s, REAL mean_uh) {                 \
    const REAL sign = (REAL)((x > 0) - (x < 0));                                                 \
    return s * (dy * gain - sign * mean_uh);                                                     \
  }                                                                                              \
                                                                                                 \
  /* dx = or += the gradient of x; dgain += dy h. */                                             \
  static void BackwardRow##NAME(const ELEMENT* x, const ELEMENT* dy, const REAL* gain, REAL s,   \
                                uint32_t dim, int accumulate, ELEMENT* dx, REAL* dgain) {        \
    REAL sum[LANES] = {0};                                                                       \
    uint32_t i = 0;                                                                              \
    for (; i + LANES <= dim; i += LANES) {                                                       \
      for (uint32_t k = 0; k < LANES; ++k) {                                                     \
        sum[k] += LOAD(dy[i + k]) * gain[i + k] * (LOAD(x[i + k]) * s);                          \
      }                                                                                          \
    }                                                                                            \
    for (uint32_t k = 0; i + k < dim; ++k) {                                                     \
      sum[k] += LOAD(dy[i + k]) * gain[i + k] * (LOAD(x[i + k]) * s);                            \
    }                                                                                            \
    const REAL mean_uh = Total##NAME(sum) / (REAL)dim;                                           \
    for (i = 0; i < dim; ++i) dgain[i] += LOAD(dy[i]) * (LOAD(x[i]) * s);                        \
    /* dx may be dy, and dx may hold anything when it is not added to. */                        \
    for (i = 0; i < dim; ++i) {                                                                  \
      const REAL d = Gradient##NAME(LOAD(x[i]), LOAD(dy[i]), gain[i], s, mean_uh);               \
      dx[i] = accumulate ? STORE(LOAD(dx[i]) + d) : STORE(d);                                    \
    }                                                                                            \
  }                                                                                              \
                                                                                                 \
  static void Forward##NAME(const plumb_norm_instance* norm, const plumb_norm_call* call,        \
                            int64_t r0, int64_t r1) {                                            \
    const REAL* gain = (const REAL*)call->params[0];                                             \
    for (int64_t r = r0; r < r1; ++r) {                                                          \
      const REAL s = ForwardRow##NAME(PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r), gain, \
                                      (REAL)norm->eps, norm->dim,                                \
                                      PLUMB_ROW(ELEMENT, call->y, call->y_pitch, r));            \
      /* Only training calls want it. */                                                         \
      if (call->saved != NULL) *PLUMB_ROW(REAL, call->saved, call->saved_pitch, r) = s;          \
    }                                                                                            \
  }                                                                                              \
                                                                                                 \
  static void Backward##NAME(const plumb_norm_instance* norm, const plumb_norm_call* call,       \
                             int64_t r0, int64_t r1) {                                           \
    const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                        \
    for (int64_t r = r0; r < r1; ++r) {                                                          \
      BackwardRow##NAME(                                                                         \
          PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r),                                   \
          PLUMB_CONST_ROW(ELEMENT, call->dy, call->dy_pitch, r), (const REAL*)call->params[0],   \
          *PLUMB_CONST_ROW(REAL, call->saved, call->saved_pitch, r), norm->dim, accumulate,      \
          PLUMB_ROW(ELEMENT, call->dx, call->dx_pitch, r), (REAL*)call->dparams[0]);             \
    }                                                                                            \
  }

#define SAME(value) (value)
DEFINE_ROWS(F32, float, float, fabsf, SAME, SAME)
DEFINE_ROWS(F64, double, double, fabs, SAME, SAME)
DEFINE_ROWS(Bf16, plumb_bf16, float, fabsf, plumb_bf16_to_float, plumb_bf16_from_float)

/* -- What may be configured, and what is learned ------------------------------------------------
 */

enum { kEps, kAttributeCount };

static const plumb_attr_def kAttributes[kAttributeCount] = {
    {
        .name = "eps",
        .doc = "Added to the mean absolute value.",
        .type = PLUMB_ATTR_F64,
        .min = 1e-12,
        .max = 1,
        .def = {.f = 1e-5},
    },
};

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  /* The host has checked this against kAttributes; a norm that is linked into a program may not
   * have had one. */
  if (!(values[kEps].f >= 1e-12 && values[kEps].f <= 1)) {
    snprintf(err, cap, "eps must be in 1e-12..1 and is %g", values[kEps].f);
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  norm->dim = dim;
  norm->eps = values[kEps].f;
  norm->gain.name = "weight"; /* its name in checkpoints: never change it */
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
  out->saved_per_row = 1;
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

/* -- The table ----------------------------------------------------------------------------------
 */

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_F32:
      ForwardF32(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_BF16:
      ForwardBf16(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_F64:
      ForwardF64(norm, call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_UNIMPLEMENTED;
  }
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_F32:
      BackwardF32(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_BF16:
      BackwardBf16(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_F64:
      BackwardF64(norm, call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_UNIMPLEMENTED;
  }
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .min_host_minor = 0,
    .id = "org.example.my_norm",
    .name = "my_norm",
    .version = "0.1.0",
    .vendor = "",
    .license = "",
    .doc = "y = g x / (mean|x| + eps).",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
             PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_F32 | PLUMB_BF16 | PLUMB_F64,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = kAttributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
