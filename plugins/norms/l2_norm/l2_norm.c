/* SPDX-License-Identifier: Apache-2.0 */
/* l2_norm: y = a x / max(|x|, eps), with |x| the row's Euclidean length and a the attribute
 * `scale`, without parameters. With the defaults, a = 1 and eps = 0, rows land on the unit sphere:
 * the normalization of nGPT, Loshchilov et al. 2024, "nGPT: Normalized Transformer with
 * Representation Learning on the Hypersphere", arXiv:2410.01131.
 *
 * A row of zeros has no direction. It stays a row of zeros, and with eps = 0 its gradient is 0,
 * since the gradient for eps > 0, a dy / eps, has no limit. Rows whose max(|x|, eps) is below 1e-30
 * count as zeros, so that no gradient overflows.
 *
 * Let r = 1 / max(|x|, eps), or 0 for a row that counts as zeros, and h = r x, so that y = a h.
 * Where |x| > eps, dr/dx_j = -r^3 x_j, and
 *     dx_j = a (r dy_j + sum_i(dy_i x_i) dr/dx_j) = a r (dy_j - h_j c),   c = sum_i(dy_i h_i)
 * In a row that is shorter than eps, r is constant: dx = a r dy.
 *
 * forward() saves r of each row; backward() reads x again and computes h from it. */
#include <math.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("l2_norm");

enum { kEps, kScale, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kEps] = {.name = "eps",
              .doc = "A row that is shorter is divided by this and not by its length; 0: none is.",
              .type = PLUMB_ATTR_F64,
              .min = 0,
              .max = 1,
              .def = {.f = 0}},
    [kScale] = {.name = "scale",
                .doc = "a, the length of the rows that come out.",
                .type = PLUMB_ATTR_F64,
                .min = 1e-6,
                .max = 1e6,
                .def = {.f = 1}},
};

struct plumb_norm_instance {
  size_t dim;
  double eps, scale;
};

/* Squares of floats may overflow float. A NaN stays a NaN. */
#define FORWARD_L2                                                                         \
  const real a = (real)norm->scale, largest = (real)(1 / norm->eps); /* may be infinite */ \
  PLUMB_EACH_ROW {                                                                         \
    double squares;                                                                        \
    PLUMB_SUM(sum_type, squares, 0, dim, ((sum_type)x * (sum_type)x));                     \
    if (!(squares > 1e-30 && squares < 1e30)) {                                            \
      PLUMB_SUM(double, squares, 0, dim, ((double)x * (double)x));                         \
    }                                                                                      \
    real r = (real)(1 / sqrt(squares));                                                    \
    if (r > largest) r = largest;                                                          \
    if (r > (real)1e30) r = 0;                                                             \
    PLUMB_SAVE(0, r);                                                                      \
    const real ar = a * r;                                                                 \
    PLUMB_Y(0, dim, (ar * x));                                                             \
  }
#define BACKWARD_L2                                                  \
  const real a = (real)norm->scale, largest = (real)(1 / norm->eps); \
  PLUMB_EACH_ROW {                                                   \
    const real r = PLUMB_SAVED(0), ar = a * r;                       \
    double sum;                                                      \
    PLUMB_SUM(sum_type, sum, 0, dim, (dy * (x * r)));                \
    const real c = r >= largest ? 0 : (real)sum;                     \
    PLUMB_DX(0, dim, (ar * (dy - x * r * c)), (void)0);              \
  }
PLUMB_NORM_ROWS(L2, 0)

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  *norm = (plumb_norm_instance){.dim = dim, .eps = values[kEps].f, .scale = values[kScale].f};
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  (void)norm;
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->saved_per_row = 1; /* r */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "l2_norm",
    .name = "L2 norm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc = "y = scale x / max(|x|, eps); Loshchilov et al. 2024 (nGPT), arXiv:2410.01131.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = L2Forward,
    .backward = L2Backward,
    .get_extension = L2GetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
