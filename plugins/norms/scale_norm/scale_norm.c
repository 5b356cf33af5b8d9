/* SPDX-License-Identifier: Apache-2.0 */
/* scale_norm: y = g x / max(|x|, eps), with |x| the row's Euclidean length and g one learned
 * number. ScaleNorm, Nguyen & Salazar 2019, "Transformers without Tears", arXiv:1910.05895.
 * Initially g = sqrt(dim), which is RMSNorm without a gain per channel.
 *
 * Let r = 1 / max(|x|, eps) and h = r x, so that y = g h. Where |x| > eps, dr/dx_j = -r^3 x_j, and
 *     dx_j = g (r dy_j + sum_i(dy_i x_i) dr/dx_j) = g r (dy_j - h_j c),   c = sum_i(dy_i h_i)
 *     dg   = sum over rows of c
 * In a row that is shorter than eps, r is constant: dx = (g / eps) dy. (At |x| = eps both are
 * subgradients; the second is taken.)
 *
 * forward() saves r of each row; backward() reads x again and computes h from it. */
#include <math.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("scale_norm");

enum { kEps, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kEps] = {.name = "eps",
              .doc = "A row that is shorter is divided by this and not by its length.",
              .type = PLUMB_ATTR_F64,
              .min = 1e-12,
              .max = 1,
              .def = {.f = 1e-5}},
};

struct plumb_norm_instance {
  size_t dim;
  double eps;
  plumb_tensor_def scale;
};

/* Squares of floats may overflow float. A NaN stays a NaN. */
#define FORWARD_Scale                                                                   \
  const real g = *PLUMB_PARAM(0), largest = (real)(1 / norm->eps);                      \
  PLUMB_EACH_ROW {                                                                      \
    double squares;                                                                     \
    PLUMB_SUM(sum_type, squares, 0, dim, ((sum_type)x * (sum_type)x));                  \
    if (!(squares < 1e30)) PLUMB_SUM(double, squares, 0, dim, ((double)x * (double)x)); \
    real r = (real)(1 / sqrt(squares));                                                 \
    if (r > largest) r = largest;                                                       \
    PLUMB_SAVE(0, r);                                                                   \
    const real gr = g * r;                                                              \
    PLUMB_Y(0, dim, (gr * x));                                                          \
  }
#define BACKWARD_Scale                                             \
  const real g = *PLUMB_PARAM(0), largest = (real)(1 / norm->eps); \
  double dg = 0;                                                   \
  PLUMB_EACH_ROW {                                                 \
    const real r = PLUMB_SAVED(0), gr = g * r;                     \
    double sum;                                                    \
    PLUMB_SUM(sum_type, sum, 0, dim, (dy * (x * r)));              \
    dg += sum;                                                     \
    const real c = r >= largest ? 0 : (real)sum;                   \
    PLUMB_DX(0, dim, (gr * (dy - x * r * c)), (void)0);            \
  }                                                                \
  *PLUMB_DPARAM(0) += (real)dg;
PLUMB_NORM_ROWS(Scale, 0)

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  *norm = (plumb_norm_instance){
      .dim = dim,
      .eps = values[kEps].f,
      .scale = {.name = "scale",
                .doc = "g, the length of the rows that come out.",
                .init = PLUMB_INIT_CONST,
                .init_a = sqrt((double)dim),
                .lr_scale = 1},
  };
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->scale;
  out->saved_per_row = 1; /* r */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "scale_norm",
    .name = "ScaleNorm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc = "y = g x / max(|x|, eps), g one number; Nguyen & Salazar 2019, arXiv:1910.05895.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = ScaleForward,
    .backward = ScaleBackward,
    .get_extension = ScaleGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
