/* SPDX-License-Identifier: Apache-2.0 */
/* rms_loops: y = (o + w) x / (<x^2>^(1/2) + eps), or eps inside the root; o is 1 if `zero_centred`.
 * An outside author's RMSNorm in plain loops, against plumb/norm_plugin.h alone.
 *
 * With s the factor of x, h = x s, u = dy (o + w):
 *     dx = s u - x q s <u h>, q = ds/d<x^2> scaled: s with eps inside, 1 / rms with eps outside
 *     dw = sum over rows of dy h
 * forward() keeps s and q. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.rms_loops");

enum { kEps, kEpsPlace, kZeroCentred, kAttributeCount };

static const char* const kPlaces[] = {"inside", "outside", NULL};

static const plumb_attr_def kAttributes[kAttributeCount] = {
    {.name = "eps",
     .doc = "Keeps the divisor from being 0.",
     .type = PLUMB_ATTR_F64,
     .min = 1e-12,
     .max = 1,
     .def = {.f = 1e-6}},
    {.name = "eps_place",
     .doc = "Adds eps inside the root, instead of outside of it.",
     .type = PLUMB_ATTR_ENUM,
     .def = {.s = "inside"},
     .choices = kPlaces},
    {.name = "zero_centred",
     .doc = "Makes the gain 1 + weight.",
     .type = PLUMB_ATTR_BOOL,
     .max = 1},
};

struct plumb_norm_instance {
  double eps;
  int outside;
  int offset;
  plumb_tensor_def weight;
};

static float LoadFloat(float v) { return v; }
static double LoadDouble(double v) { return v; }

/* T is the type in memory, A the accumulate type. Sums are in double, in the order of the
   elements. */
#define DEFINE_ROWS(NAME, T, A, LOAD, STORE)                                                 \
  static void Forward##NAME(const plumb_norm_instance* norm, const plumb_norm_call* call,    \
                            int64_t r0, int64_t r1) {                                        \
    const A* weight = (const A*)call->params[0];                                             \
    const A offset = (A)norm->offset;                                                        \
    for (int64_t r = r0; r < r1; ++r) {                                                      \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);                            \
      T* y = PLUMB_ROW(T, call->y, call->y_pitch, r);                                        \
      double sum = 0;                                                                        \
      for (uint32_t i = 0; i < call->dim; ++i) {                                             \
        const double v = (double)LOAD(x[i]);                                                 \
        sum += v * v;                                                                        \
      }                                                                                      \
      const double square = sum / call->dim;                                                 \
      const double rms = sqrt(square);                                                       \
      const double s = norm->outside ? 1 / (rms + norm->eps) : 1 / sqrt(square + norm->eps); \
      if (call->saved != NULL) {                                                             \
        A* saved = PLUMB_ROW(A, call->saved, call->saved_pitch, r);                          \
        saved[0] = (A)s;                                                                     \
        saved[1] = (A)(!norm->outside ? s : rms >= (double)FLT_MIN ? 1 / rms : 0);           \
      }                                                                                      \
      const A factor = (A)s;                                                                 \
      for (uint32_t i = 0; i < call->dim; ++i) {                                             \
        y[i] = STORE(LOAD(x[i]) * factor * (offset + weight[i]));                            \
      }                                                                                      \
    }                                                                                        \
  }                                                                                          \
                                                                                             \
  static void Backward##NAME(const plumb_norm_instance* norm, const plumb_norm_call* call,   \
                             int64_t r0, int64_t r1) {                                       \
    const A* weight = (const A*)call->params[0];                                             \
    A* dweight = (A*)call->dparams[0];                                                       \
    const A offset = (A)norm->offset;                                                        \
    const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                    \
    for (int64_t r = r0; r < r1; ++r) {                                                      \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);                            \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, r);                         \
      T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, r);                                     \
      const A* saved = PLUMB_CONST_ROW(A, call->saved, call->saved_pitch, r);                \
      const A s = saved[0], q = saved[1];                                                    \
      double sum = 0;                                                                        \
      for (uint32_t i = 0; i < call->dim; ++i) {                                             \
        sum += (double)(LOAD(dy[i]) * (offset + weight[i])) * (double)(LOAD(x[i]) * s);      \
      }                                                                                      \
      const A mean = (A)(sum / call->dim);                                                   \
      for (uint32_t i = 0; i < call->dim; ++i) {                                             \
        const A xi = LOAD(x[i]), dyi = LOAD(dy[i]);                                          \
        const A gradient = s * (dyi * (offset + weight[i]) - xi * q * mean);                 \
        dweight[i] += dyi * (xi * s);                                                        \
        dx[i] = accumulate ? STORE(LOAD(dx[i]) + gradient) : STORE(gradient);                \
      }                                                                                      \
    }                                                                                        \
  }
DEFINE_ROWS(F32, float, float, LoadFloat, LoadFloat)
DEFINE_ROWS(Bf16, plumb_bf16, float, plumb_bf16_to_float, plumb_bf16_from_float)
DEFINE_ROWS(F64, double, double, LoadDouble, LoadDouble)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_DTYPE_F32:
      ForwardF32(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_BF16:
      ForwardBf16(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_F64:
      ForwardF64(norm, call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_STATUS_UNIMPLEMENTED;
  }
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_DTYPE_F32:
      BackwardF32(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_BF16:
      BackwardBf16(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_F64:
      BackwardF64(norm, call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_STATUS_UNIMPLEMENTED;
  }
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  const double eps = values[kEps].f;
  const char* place = values[kEpsPlace].s;
  if (!(eps >= 1e-12 && eps <= 1)) {
    snprintf(err, cap, "eps must be in 1e-12..1 and is %g", eps);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  if (place == NULL || (strcmp(place, "inside") != 0 && strcmp(place, "outside") != 0)) {
    snprintf(err, cap, "eps_place must be inside or outside");
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->eps = eps;
  norm->outside = strcmp(place, "outside") == 0;
  norm->offset = values[kZeroCentred].i != 0;
  norm->weight.name = "weight";
  norm->weight.doc = "The gain, less 1 if zero_centred.";
  norm->weight.ndim = 1;
  norm->weight.dims[0] = dim;
  norm->weight.init = norm->offset ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES;
  norm->weight.lr_scale = 1;
  norm->weight.offset = norm->offset;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->weight;
  out->saved_per_row = 2;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "org.example.rms_loops",
    .name = "RMSNorm in plain loops",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "Root mean square with a gain; eps inside or outside of the root.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
             PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
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
