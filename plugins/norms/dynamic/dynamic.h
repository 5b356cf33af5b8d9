/* SPDX-License-Identifier: Apache-2.0 */
/* The norm y = weight f(alpha x + shift) + bias, which dyt.c and derf.c compile with their own f.
 * alpha, shift, weight and bias are learned; alpha and shift are single numbers. `bias: false`
 * drops the bias, `affine: false` also the weight.
 *
 * With z = alpha x + shift and v = dy weight f'(z):
 *     dx = alpha v
 *     dalpha = sum over elements and rows of v x,   dshift = the same sum of v
 *     dweight = sum over rows of dy f(z),           dbias = sum over rows of dy
 * backward() reads x again and computes z from it: nothing is saved.
 *
 * The file that includes this one defines:
 *   DYNAMIC_ID, DYNAMIC_NAME, DYNAMIC_PAPER   strings of the plugin's table
 *   DYNAMIC_FUNCTION                          the name of f in doc strings, a string
 *   DYNAMIC_HAS_SHIFT                         1, or 0 for z = alpha x without a shift
 *   DYNAMIC_F(z)                              f
 *   DYNAMIC_SLOPE(z, f)                       f'(z), given f(z)
 * Both functions may use `fused` and `real` of norm_rows.h. */
#ifndef PLUMB_NORMS_DYNAMIC_H_
#define PLUMB_NORMS_DYNAMIC_H_

#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE(DYNAMIC_ID);

#if DYNAMIC_HAS_SHIFT
enum { kAlpha, kShift, kWeight, kBias, kParamCount };
enum { kAlphaInit, kShiftInit, kAffine, kHasBias, kAttributeCount };
#define DYNAMIC_Z PLUMB_FMA(fused, alpha, x, *shift)
#else
enum { kAlpha, kWeight, kBias, kParamCount };
enum { kAlphaInit, kAffine, kHasBias, kAttributeCount };
#define DYNAMIC_Z (alpha * x)
#endif

struct plumb_norm_instance {
  uint32_t n_params; /* learned params, a prefix of the array */
  plumb_tensor_def params[kParamCount];
};

static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kAlphaInit] = {.name = "alpha_init",
                    .doc = "Initial value of alpha.",
                    .type = PLUMB_ATTR_F64,
                    .max = 1000,
                    .def = {.f = 0.5}},
#if DYNAMIC_HAS_SHIFT
    [kShiftInit] = {.name = "shift_init",
                    .doc = "Initial value of shift.",
                    .type = PLUMB_ATTR_F64,
                    .min = -1000,
                    .max = 1000,
                    .def = {.f = 0}},
#endif
    [kAffine] = {.name = "affine",
                 .doc = "Adds a weight and a bias.",
                 .type = PLUMB_ATTR_BOOL,
                 .max = 1,
                 .def = {.i = 1}},
    [kHasBias] = {.name = "bias",
                  .doc = "Adds a bias next to the weight.",
                  .type = PLUMB_ATTR_BOOL,
                  .max = 1,
                  .def = {.i = 1}},
};

#if DYNAMIC_HAS_SHIFT
#define DYNAMIC_SHIFT const real* shift = PLUMB_PARAM(kShift);
#define DYNAMIC_ADD_SHIFT(sum) *PLUMB_DPARAM(kShift) += (sum)
#else
#define DYNAMIC_SHIFT
#define DYNAMIC_ADD_SHIFT(sum) (void)(sum)
#endif

/* The variant is the number of learned vectors: none, the weight, or both. */
#define FORWARD_Dynamic                                                   \
  const real alpha = *PLUMB_PARAM(kAlpha);                                \
  DYNAMIC_SHIFT                                                           \
  const real* weight = variant >= 1 ? PLUMB_PARAM(kWeight) : NULL;        \
  const real* bias = variant == 2 ? PLUMB_PARAM(kBias) : NULL;            \
  PLUMB_EACH_ROW {                                                        \
    PLUMB_Y(0, dim,                                                       \
            variant == 0   ? DYNAMIC_F(DYNAMIC_Z)                         \
            : variant == 1 ? DYNAMIC_F(DYNAMIC_Z) * weight[i]             \
                           : DYNAMIC_F(DYNAMIC_Z) * weight[i] + bias[i]); \
  }
#define BACKWARD_Dynamic                                                                    \
  const real alpha = *PLUMB_PARAM(kAlpha);                                                  \
  DYNAMIC_SHIFT                                                                             \
  const real* weight = variant >= 1 ? PLUMB_PARAM(kWeight) : NULL;                          \
  real* dalpha = PLUMB_DPARAM(kAlpha);                                                      \
  real* dweight = variant >= 1 ? PLUMB_DPARAM(kWeight) : NULL;                              \
  real* dbias = variant == 2 ? PLUMB_DPARAM(kBias) : NULL;                                  \
  PLUMB_EACH_ROW {                                                                          \
    real sum, sum_shift;                                                                    \
    PLUMB_DX_SUM2(real, sum, sum_shift, 0, dim, (alpha * v), const real z = DYNAMIC_Z;      \
                  const real f = DYNAMIC_F(z); const real slope = dy * DYNAMIC_SLOPE(z, f); \
                  const real v = variant >= 1 ? slope * weight[i] : slope;                  \
                  if (variant >= 1) dweight[i] += dy * f;                                   \
                  if (variant == 2) dbias[i] += dy, v * x, DYNAMIC_HAS_SHIFT ? v : 0);      \
    *dalpha += sum;                                                                         \
    DYNAMIC_ADD_SHIFT(sum_shift);                                                           \
  }
PLUMB_NORM_ROWS(Dynamic, norm->n_params - kWeight)

static plumb_tensor_def Number(const char* name, const char* doc, double init) {
  return (plumb_tensor_def){
      .name = name, .doc = doc, .init = PLUMB_INIT_CONST, .init_a = init, .lr_scale = 1};
}

static plumb_tensor_def Vector(const char* name, const char* doc, uint32_t init, uint32_t dim) {
  return (plumb_tensor_def){
      .name = name, .doc = doc, .ndim = 1, .dims = {dim}, .init = init, .lr_scale = 1};
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->n_params = values[kAffine].i == 0 ? kWeight : values[kHasBias].i == 0 ? kBias : kParamCount;
  norm->params[kAlpha] =
      Number("alpha", "The factor inside " DYNAMIC_FUNCTION ".", values[kAlphaInit].f);
#if DYNAMIC_HAS_SHIFT
  norm->params[kShift] =
      Number("shift", "The summand inside " DYNAMIC_FUNCTION ".", values[kShiftInit].f);
#endif
  norm->params[kWeight] = Vector("weight", "The gain.", PLUMB_INIT_ONES, dim);
  norm->params[kBias] = Vector("bias", "The bias.", PLUMB_INIT_ZEROS, dim);
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = norm->n_params;
  out->params = norm->params;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = DYNAMIC_ID,
    .name = DYNAMIC_NAME,
    .version = "1.1.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc = DYNAMIC_PAPER,
    .flags = PLUMB_ROWS_FLAGS,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = DynamicForward,
    .backward = DynamicBackward,
    .get_extension = DynamicGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}

#endif /* PLUMB_NORMS_DYNAMIC_H_ */
