/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm: y = gamma (x - mu) / sigma + beta, Ba, Kiros & Hinton 2016, "Layer Normalization",
 * arXiv:1607.06450, eq. 4, with the biased variance and eps inside the root. `affine: false` drops
 * gamma and beta (OLMo 1), `bias: false` beta alone.
 *
 * With <a> the mean of a over the row, mu = <x>, r = (<(x - mu)^2> + eps)^(-1/2), h = (x - mu) r:
 *     y = gamma h + beta
 * Let u = dy gamma, the gradient of h. As dmu/dx_j = 1/dim and dr/dx_j = -r^3 (x_j - mu) / dim,
 *     dx_j = r (u_j - <u>) + sum_i(u_i (x_i - mu)) dr/dx_j = r (u_j - <u> - h_j <u h>)
 *     dgamma = sum over rows of dy h,   dbeta = sum over rows of dy
 * forward() saves mu and r of each row; backward() reads x again and computes h from them.
 *
 * The statistics take one pass over the row. With d = x - x_0, mu = x_0 + <d>, and the variance is
 * <d^2> - <d>^2: shifted data, Chan, Golub & LeVeque 1983, "Algorithms for computing the sample
 * variance". The difference loses digits only if x_0 is some sigma away from the mean; such a row
 * is read again with the mean as the shift. So a constant row has variance 0 and y = beta, exactly.
 *
 * Special cases. r and dx are 0 if variance + eps is 0 (a constant row, eps = 0). Squares outside
 * the range of float (|x| beyond 1e17; tiny rows with a tiny eps) are computed in double.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("layer_norm");

enum { kEps, kAffine, kBias, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kEps] = {.name = "eps",
              .doc = "Added to the variance before the root.",
              .type = PLUMB_ATTR_F64,
              .max = 1,
              .def = {.f = 1e-5}},
    [kAffine] = {.name = "affine",
                 .doc = "Adds a gain and a bias.",
                 .type = PLUMB_ATTR_BOOL,
                 .max = 1,
                 .def = {.i = 1}},
    [kBias] = {.name = "bias",
               .doc = "Adds a bias next to the gain.",
               .type = PLUMB_ATTR_BOOL,
               .max = 1,
               .def = {.i = 1}},
};

struct plumb_norm_instance {
  double eps;
  uint32_t n_params; /* 0, 1 (gain) or 2 (gain and bias) */
  plumb_tensor_def params[2];
};

/* Returns 1 / sqrt(variance + eps), at most `largest`. */
static long double WideReciprocal(long double variance, double eps, double largest) {
  const long double v = variance + (long double)eps, r = v == 0 ? 0 : 1 / sqrtl(v);
  return r > (long double)largest ? (long double)largest : r;
}

#define LARGEST (sizeof(real) == sizeof(float) ? (real)FLT_MAX : (real)DBL_MAX)
/* Bound below which squares that underflowed to 0 would matter. */
#define LEAST \
  (sizeof(real) == sizeof(float) ? (real)(FLT_MIN / FLT_EPSILON) : (real)(DBL_MIN / DBL_EPSILON))
#define FORWARD_Layer                                                                       \
  const real* weight = variant >= 1 ? PLUMB_PARAM(0) : NULL;                                \
  const real* bias = variant == 2 ? PLUMB_PARAM(1) : NULL;                                  \
  const real inverse_dim = 1 / (real)dim;                                                   \
  PLUMB_EACH_ROW {                                                                          \
    real shift = PLUMB_X(0), d, squares, variance;                                          \
    for (int again = 0;; ++again) {                                                         \
      PLUMB_SUM2(real, d, squares, 0, dim, x - shift, (x - shift) * (x - shift));           \
      d *= inverse_dim;                                                                     \
      variance = squares * inverse_dim - d * d;                                             \
      if (again || d * d <= 8 * variance) break; /* not with a NaN */                       \
      shift += d;                                                                           \
    }                                                                                       \
    const real v = (variance < 0 ? 0 : variance) + (real)norm->eps;                         \
    real mean = shift + d, r = 1 / plumb_sqrt(v);                                           \
    if (!(v >= LEAST && v <= LARGEST)) {                                                    \
      wide sum;                                                                             \
      PLUMB_WIDE_SUM(sum, 0, dim, (wide)x - (wide)shift);                                   \
      const wide wide_mean = (wide)shift + sum / (wide)dim;                                 \
      mean = (real)wide_mean;                                                               \
      PLUMB_WIDE_SUM(sum, 0, dim, ((wide)x - wide_mean) * ((wide)x - wide_mean));           \
      r = (real)WideReciprocal((long double)(sum / (wide)dim), norm->eps, (double)LARGEST); \
    }                                                                                       \
    PLUMB_SAVE(0, mean);                                                                    \
    PLUMB_SAVE(1, r);                                                                       \
    PLUMB_Y(0, dim,                                                                         \
            variant == 0   ? (x - mean) * r                                                 \
            : variant == 1 ? (x - mean) * r * weight[i]                                     \
                           : (x - mean) * r * weight[i] + bias[i]);                         \
  }
#define U (variant == 0 ? dy : dy * weight[i])
#define BACKWARD_Layer                                                       \
  const real* weight = variant >= 1 ? PLUMB_PARAM(0) : NULL;                 \
  real* dweight = variant >= 1 ? PLUMB_DPARAM(0) : NULL;                     \
  real* dbias = variant == 2 ? PLUMB_DPARAM(1) : NULL;                       \
  const real inverse_dim = 1 / (real)dim;                                    \
  PLUMB_EACH_ROW {                                                           \
    const real mean = PLUMB_SAVED(0), r = PLUMB_SAVED(1);                    \
    real sum_u, sum_uh;                                                      \
    PLUMB_SUM2(real, sum_u, sum_uh, 0, dim, U, (U * ((x - mean) * r)));      \
    const real mean_u = sum_u * inverse_dim, mean_uh = sum_uh * inverse_dim; \
    PLUMB_DX(0, dim, (r * (U - mean_u - (x - mean) * r * mean_uh)),          \
             if (variant >= 1) dweight[i] += dy * ((x - mean) * r);          \
             if (variant == 2) dbias[i] += dy);                              \
  }
PLUMB_NORM_ROWS(Layer, norm->n_params)

static plumb_tensor_def Param(const char* name, const char* doc, uint32_t dim, uint32_t init) {
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
  *norm = (plumb_norm_instance){
      .eps = values[kEps].f,
      .n_params = values[kAffine].i == 0 ? 0
                  : values[kBias].i == 0 ? 1
                                         : 2,
      .params = {Param("weight", "The gain gamma.", dim, PLUMB_INIT_ONES),
                 Param("bias", "The bias beta.", dim, PLUMB_INIT_ZEROS)},
  };
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = norm->n_params;
  out->params = norm->params;
  out->saved_per_row = 2; /* mean, r */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "layer_norm",
    .name = "LayerNorm",
    .version = "1.2.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "y = gamma (x - mean) / sqrt(var + eps) + beta; Ba, Kiros & Hinton 2016, arXiv:1607.06450.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = LayerForward,
    .backward = LayerBackward,
    .get_extension = LayerGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
