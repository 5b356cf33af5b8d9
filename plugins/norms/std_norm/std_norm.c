/* SPDX-License-Identifier: Apache-2.0 */
/* std_norm: y = gamma (x - mean) / (sigma + eps) + beta, with sigma the row's standard deviation
 * and eps outside the root: the layer normalization of the Annotated Transformer (Rush 2018).
 * There, and here by default, sigma is the unbiased estimate, with the denominator dim - 1; with
 * `unbiased: false` the denominator is dim.
 *
 * Let n be that denominator, s = 1 / (sigma + eps), h = (x - mean) s, so that y = gamma h + beta,
 * u = dy gamma the gradient of h, and <a> the mean of a over the row.
 *     dsigma/dx_j = (x_j - mean) / (n sigma), as deviations from the mean sum to 0
 *     dh_i/dx_j   = s ([i = j] - 1/dim) - s h_i dsigma/dx_j
 *     dx_j = s (u_j - <u>) - s c (x_j - mean) / (n sigma) = s (u_j - <u>) - h_j c / (n sigma)
 *     c    = sum_i(u_i h_i),   dgamma = sum over rows of dy h,   dbeta = sum over rows of dy
 * In a constant row sigma is 0 and has no derivative; 0 is a subgradient, so the term with
 * sigma is dropped there: dx = (u - <u>) / eps.
 *
 * forward() saves mean and sigma of each row; backward() reads x again and computes h from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("std_norm");

enum { kEps, kUnbiased, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kEps] = {.name = "eps",
              .doc = "Added to the standard deviation.",
              .type = PLUMB_ATTR_F64,
              .min = 1e-12,
              .max = 1,
              .def = {.f = 1e-6}},
    [kUnbiased] = {.name = "unbiased",
                   .doc =
                       "Divides the sum of squares by dim - 1 for the variance, instead of by dim.",
                   .type = PLUMB_ATTR_BOOL,
                   .max = 1,
                   .def = {.i = 1}},
};

struct plumb_norm_instance {
  size_t dim;
  double eps, n; /* n: denominator of the variance */
  plumb_tensor_def params[2];
};

#define FORWARD_Std                                                                    \
  const real *weight = PLUMB_PARAM(0), *bias = PLUMB_PARAM(1);                         \
  PLUMB_EACH_ROW {                                                                     \
    double sum, squares;                                                               \
    PLUMB_SUM(sum_type, sum, 0, dim, x);                                               \
    const real mean = (real)(sum / (double)dim);                                       \
    PLUMB_SUM(sum_type, squares, 0, dim, (sum_type)(x - mean) * (sum_type)(x - mean)); \
    const real sigma = (real)sqrt(squares / norm->n);                                  \
    const real s = (real)(1 / ((double)sigma + norm->eps));                            \
    PLUMB_SAVE(0, mean);                                                               \
    PLUMB_SAVE(1, sigma);                                                              \
    PLUMB_Y(0, dim, weight[i] * ((x - mean) * s) + bias[i]);                           \
  }
#define BACKWARD_Std                                                                        \
  const real* weight = PLUMB_PARAM(0);                                                      \
  real *dweight = PLUMB_DPARAM(0), *dbias = PLUMB_DPARAM(1);                                \
  PLUMB_EACH_ROW {                                                                          \
    const real mean = PLUMB_SAVED(0), s = (real)(1 / ((double)PLUMB_SAVED(1) + norm->eps)); \
    const double sigma = (double)PLUMB_SAVED(1);                                            \
    double sum_u, sum_uh;                                                                   \
    PLUMB_SUM2(sum_type, sum_u, sum_uh, 0, dim, (dy * weight[i]),                           \
               (dy * weight[i] * ((x - mean) * s)));                                        \
    const real mean_u = (real)(sum_u / (double)dim);                                        \
    const real c = sigma == 0 ? 0 : (real)(sum_uh / (norm->n * sigma));                     \
    PLUMB_DX(0, dim, (s * (dy * weight[i] - mean_u) - (x - mean) * s * c),                  \
             (dweight[i] += dy * ((x - mean) * s), dbias[i] += dy));                        \
  }
PLUMB_NORM_ROWS(Std, 0)

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  const int unbiased = values[kUnbiased].i != 0;
  if (unbiased && dim == 1) {
    if (cap > 0) {
      snprintf(err, cap,
               "dim is 1, and one number has no unbiased deviation: set unbiased to false");
    }
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  *norm = (plumb_norm_instance){
      .dim = dim,
      .eps = values[kEps].f,
      .n = (double)dim - (unbiased ? 1 : 0),
      .params = {{.name = "weight",
                  .doc = "The gain gamma.",
                  .ndim = 1,
                  .dims = {dim},
                  .init = PLUMB_INIT_ONES,
                  .lr_scale = 1},
                 {.name = "bias",
                  .doc = "The bias beta.",
                  .ndim = 1,
                  .dims = {dim},
                  .init = PLUMB_INIT_ZEROS,
                  .lr_scale = 1}},
  };
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 2;
  out->params = norm->params;
  out->saved_per_row = 2; /* mean, sigma */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "std_norm",
    .name = "Standard deviation norm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc = "y = gamma (x - mean) / (sigma + eps) + beta; Rush 2018, The Annotated Transformer.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = StdForward,
    .backward = StdBackward,
    .get_extension = StdGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
