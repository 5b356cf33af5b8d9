/* SPDX-License-Identifier: Apache-2.0 */
/* rms_norm: y = g * x / rms(x), Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq.
 * 4, with eps inside the root, as in LLaMA. g is the weight, or 1 + weight (`unit_offset`, as in
 * Gemma: weight decay and zero initial values then pull the gain towards 1), or 1 (`affine:
 * false`).
 *
 * With <a> the mean of a over the row, r = (<x^2> + eps)^(-1/2), h = x r:
 *     y = g h
 * Let u = dy g, the gradient of h. As dr/dx_j = -r^3 x_j / dim,
 *     dx_j = r u_j + sum_i(u_i x_i) dr/dx_j = r (u_j - h_j <u h>)
 *     dweight = sum over rows of dy h        (g and weight differ by a constant)
 * forward() saves r of each row; backward() reads x again and computes h from it.
 *
 * Special cases. r and dx are 0 if <x^2> + eps is 0 (a row of zeros, eps = 0). Squares outside the
 * range of float (|x| beyond 1e17; tiny rows with a tiny eps) are computed in double.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("rms_norm");

enum { kEps, kAffine, kUnitOffset, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kEps] = {.name = "eps",
              .doc = "Added to the mean square before the root.",
              .type = PLUMB_ATTR_F64,
              .max = 1,
              .def = {.f = 1e-5}},
    [kAffine] = {.name = "affine",
                 .doc = "Adds a gain.",
                 .type = PLUMB_ATTR_BOOL,
                 .max = 1,
                 .def = {.i = 1}},
    [kUnitOffset] = {.name = "unit_offset",
                     .doc = "The gain is 1 + weight, and weight starts at 0 (Gemma).",
                     .type = PLUMB_ATTR_BOOL,
                     .max = 1,
                     .def = {.i = 0}},
};

enum { kNone, kWeight, kOnePlusWeight }; /* kinds of gain */

struct plumb_norm_instance {
  double eps;
  int gain;
  plumb_tensor_def weight;
};

/* Returns 1 / sqrt(square + eps), at most `largest`. */
static long double WideReciprocal(long double square, double eps, double largest) {
  const long double v = square + (long double)eps, r = v == 0 ? 0 : 1 / sqrtl(v);
  return r > (long double)largest ? (long double)largest : r;
}

#define LARGEST (sizeof(real) == sizeof(float) ? (real)FLT_MAX : (real)DBL_MAX)
/* Bound below which squares that underflowed to 0 would matter. */
#define LEAST \
  (sizeof(real) == sizeof(float) ? (real)(FLT_MIN / FLT_EPSILON) : (real)(DBL_MIN / DBL_EPSILON))
#define GAIN (variant == kNone ? (real)1 : variant == kWeight ? weight[i] : weight[i] + 1)
#define FORWARD_Rms                                                                             \
  const real* weight = variant == kNone ? NULL : PLUMB_PARAM(0);                                \
  const real inverse_dim = 1 / (real)dim;                                                       \
  PLUMB_EACH_ROW {                                                                              \
    real sum;                                                                                   \
    PLUMB_SUM(real, sum, 0, dim, (x * x));                                                      \
    const real v = sum * inverse_dim + (real)norm->eps;                                         \
    real r = 1 / plumb_sqrt(v);                                                                 \
    if (!(v >= LEAST && v <= LARGEST)) {                                                        \
      wide squares;                                                                             \
      PLUMB_WIDE_SUM(squares, 0, dim, ((wide)x * (wide)x));                                     \
      r = (real)WideReciprocal((long double)(squares / (wide)dim), norm->eps, (double)LARGEST); \
    }                                                                                           \
    PLUMB_SAVE(0, r);                                                                           \
    PLUMB_Y(0, dim, (x * r * GAIN));                                                            \
  }
#define BACKWARD_Rms                                             \
  const real* weight = variant == kNone ? NULL : PLUMB_PARAM(0); \
  real* dweight = variant == kNone ? NULL : PLUMB_DPARAM(0);     \
  const real inverse_dim = 1 / (real)dim;                        \
  PLUMB_EACH_ROW {                                               \
    const real r = PLUMB_SAVED(0);                               \
    real sum;                                                    \
    PLUMB_SUM(real, sum, 0, dim, (dy * GAIN * (x * r)));         \
    const real mean_uh = sum * inverse_dim;                      \
    PLUMB_DX(0, dim, (r * (dy * GAIN - x * r * mean_uh)),        \
             if (variant != kNone) dweight[i] += dy * (x * r));  \
  }
PLUMB_NORM_ROWS(Rms, norm->gain)

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  const int affine = values[kAffine].i != 0, unit_offset = values[kUnitOffset].i != 0;
  if (unit_offset && !affine) {
    snprintf(err, cap, "unit_offset is about the gain, and affine: false leaves none");
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  *norm = (plumb_norm_instance){
      .eps = values[kEps].f,
      .gain = !affine       ? kNone
              : unit_offset ? kOnePlusWeight
                            : kWeight,
      .weight = {.name = "weight",
                 .doc = unit_offset ? "The gain less 1." : "The gain.",
                 .ndim = 1,
                 .dims = {dim},
                 .init = unit_offset ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES,
                 .lr_scale = 1,
                 .offset = unit_offset ? 1 : 0},
  };
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = norm->gain == kNone ? 0 : 1;
  out->params = &norm->weight;
  out->saved_per_row = 1; /* r */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "rms_norm",
    .name = "RMSNorm",
    .version = "1.2.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "y = g x / sqrt(mean(x^2) + eps), g = weight or 1 + weight; Zhang & Sennrich 2019, "
        "arXiv:1910.07467.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = RmsForward,
    .backward = RmsBackward,
    .get_extension = RmsGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
