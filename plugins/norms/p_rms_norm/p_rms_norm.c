/* SPDX-License-Identifier: Apache-2.0 */
/* p_rms_norm: y = g x r, where r = (<x^2>_k + eps)^(-1/2) and <x^2>_k is the mean over the first k
 * = ceil(p dim) elements of the row only, an estimate of the whole. pRMSNorm, Zhang & Sennrich
 * 2019, "Root Mean Square Layer Normalization", arXiv:1910.07467, section 4, with eps inside the
 * root, as in rms_norm.
 *
 * Let h = x r, so that y = g h, and u = dy g, the gradient of h. Only the first k elements affect
 * r: dr/dx_j = -r^3 x_j / k for j < k, else 0. So
 *     dx_j = r u_j + [j < k] sum_i(u_i x_i) dr/dx_j = r (u_j - [j < k] h_j c)
 *     c    = sum_i(u_i h_i) / k, over all elements
 *     dg   = sum over rows of dy h
 * forward() saves r of each row; backward() reads x again and computes h from it. */
#include <math.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("p_rms_norm");

enum { kP, kEps, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kP] = {.name = "p",
            .doc = "The part of the row, from its start, that the mean square is taken of.",
            .type = PLUMB_ATTR_F64,
            .min = 1e-6,
            .max = 1,
            .def = {.f = 0.0625}},
    [kEps] = {.name = "eps",
              .doc = "Added to the mean square before the root.",
              .type = PLUMB_ATTR_F64,
              .min = 1e-12,
              .max = 1,
              .def = {.f = 1e-5}},
};

struct plumb_norm_instance {
  size_t dim, k;
  double eps;
  plumb_tensor_def weight;
};

#define FORWARD_PRms                                                        \
  const real* weight = PLUMB_PARAM(0);                                      \
  PLUMB_EACH_ROW {                                                          \
    double squares;                                                         \
    PLUMB_SUM(sum_type, squares, 0, norm->k, ((sum_type)x * (sum_type)x));  \
    const real r = (real)(1 / sqrt(squares / (double)norm->k + norm->eps)); \
    PLUMB_SAVE(0, r);                                                       \
    PLUMB_Y(0, dim, weight[i] * (x * r));                                   \
  }
/* The first k elements and the rest have different gradients. */
#define BACKWARD_PRms                                                                        \
  const real* weight = PLUMB_PARAM(0);                                                       \
  real* dweight = PLUMB_DPARAM(0);                                                           \
  PLUMB_EACH_ROW {                                                                           \
    const real r = PLUMB_SAVED(0);                                                           \
    double sum;                                                                              \
    PLUMB_SUM(sum_type, sum, 0, dim, (dy * weight[i] * (x * r)));                            \
    for (int rest = 0; rest < 2; ++rest) {                                                   \
      const real c = rest ? 0 : (real)(sum / (double)norm->k);                               \
      PLUMB_DX(rest ? norm->k : 0, rest ? dim : norm->k, (r * (dy * weight[i] - x * r * c)), \
               dweight[i] += dy * (x * r));                                                  \
    }                                                                                        \
  }
PLUMB_NORM_ROWS(PRms, 0)

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  /* p dim, rounded up, unless it exceeds an integer by a rounding error only, as 0.07 * 100
   * does. */
  const double k = ceil(values[kP].f * (double)dim * (1 - 1e-12));
  *norm = (plumb_norm_instance){
      .dim = dim,
      .k = (size_t)k,
      .eps = values[kEps].f,
      .weight = {.name = "weight",
                 .doc = "The gain g.",
                 .ndim = 1,
                 .dims = {dim},
                 .init = PLUMB_INIT_ONES,
                 .lr_scale = 1},
  };
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->weight;
  out->saved_per_row = 1; /* r */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "p_rms_norm",
    .name = "pRMSNorm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "y = g x / sqrt(mean(x[:k]^2) + eps), k = ceil(p dim); Zhang & Sennrich 2019, "
        "arXiv:1910.07467.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = PRmsForward,
    .backward = PRmsBackward,
    .get_extension = PRmsGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
