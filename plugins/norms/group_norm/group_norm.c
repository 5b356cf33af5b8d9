/* SPDX-License-Identifier: Apache-2.0 */
/* group_norm: layer-normalizes each of `groups` pieces of a row, dim / groups adjacent elements,
 * separately: h = (x - mean) / sqrt(var + eps), with mean and (biased) variance of the piece, and y
 * = gamma h + beta with a gamma and a beta for each element of the row
 * (`affine: false`: y = h). Wu & He 2018, "Group Normalization", arXiv:1803.08494, for one token at
 * a time: no statistic leaves the row, unlike in images, where it runs over positions. As used on
 * the heads of retention, Sun et al. 2023, arXiv:2307.08621.
 *
 * In one piece, with <a> the mean of a over it, r = (var + eps)^(-1/2) and u = dy gamma, the
 * gradient of h:
 *     dr/dx_j   = -r^3 (x_j - mean) / n = -r^2 h_j / n, n the length of the piece
 *     dh_i/dx_j = r ([i = j] - 1/n) - r h_i h_j / n
 *     dx_j      = r (u_j - <u> - h_j <u h>)
 *     dgamma    = sum over rows of dy h,   dbeta = sum over rows of dy
 * forward() saves mean and r of each piece; backward() reads x again and computes h from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("group_norm");

enum { kGroups, kEps, kAffine, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kGroups] = {.name = "groups",
                 .doc = "The number of pieces; it must divide the length of the row.",
                 .type = PLUMB_ATTR_I64,
                 .min = 1,
                 .max = NAN, /* create() checks it against dim */
                 .def = {.i = 1}},
    [kEps] = {.name = "eps",
              .doc = "Added to the variance before the root.",
              .type = PLUMB_ATTR_F64,
              .min = 1e-12,
              .max = 1,
              .def = {.f = 1e-5}},
    [kAffine] = {.name = "affine",
                 .doc = "Adds a gain and a bias.",
                 .type = PLUMB_ATTR_BOOL,
                 .max = 1,
                 .def = {.i = 1}},
};

struct plumb_norm_instance {
  size_t dim, groups;
  double eps;
  int affine;
  plumb_tensor_def params[2];
};

/* The row piece by piece. The variant is 1 with a gain and a bias, else 0. */
#define FORWARD_Group                                                                         \
  const size_t n = norm->dim / norm->groups;                                                  \
  const real* weight = variant ? PLUMB_PARAM(0) : NULL;                                       \
  const real* bias = variant ? PLUMB_PARAM(1) : NULL;                                         \
  PLUMB_EACH_ROW {                                                                            \
    for (size_t group = 0; group < norm->groups; ++group) {                                   \
      const size_t begin = group * n, end = begin + n;                                        \
      double sum, squares;                                                                    \
      PLUMB_SUM(sum_type, sum, begin, end, x);                                                \
      const real mean = (real)(sum / (double)n);                                              \
      PLUMB_SUM(sum_type, squares, begin, end, (sum_type)(x - mean) * (sum_type)(x - mean));  \
      const real r = (real)(1 / sqrt(squares / (double)n + norm->eps));                       \
      PLUMB_SAVE(2 * group, mean);                                                            \
      PLUMB_SAVE(2 * group + 1, r);                                                           \
      PLUMB_Y(begin, end, variant ? weight[i] * ((x - mean) * r) + bias[i] : (x - mean) * r); \
    }                                                                                         \
  }
#define U (variant ? dy * weight[i] : dy)
#define BACKWARD_Group                                                                     \
  const size_t n = norm->dim / norm->groups;                                               \
  const real* weight = variant ? PLUMB_PARAM(0) : NULL;                                    \
  real* dweight = variant ? PLUMB_DPARAM(0) : NULL;                                        \
  real* dbias = variant ? PLUMB_DPARAM(1) : NULL;                                          \
  PLUMB_EACH_ROW {                                                                         \
    for (size_t group = 0; group < norm->groups; ++group) {                                \
      const size_t begin = group * n, end = begin + n;                                     \
      const real mean = PLUMB_SAVED(2 * group), r = PLUMB_SAVED(2 * group + 1);            \
      double sum_u, sum_uh;                                                                \
      PLUMB_SUM2(sum_type, sum_u, sum_uh, begin, end, U, (U * ((x - mean) * r)));          \
      const real mean_u = (real)(sum_u / (double)n), mean_uh = (real)(sum_uh / (double)n); \
      PLUMB_DX(begin, end, (r * (U - mean_u - (x - mean) * r * mean_uh)),                  \
               if (variant)(dweight[i] += dy * ((x - mean) * r), dbias[i] += dy));         \
    }                                                                                      \
  }
PLUMB_NORM_ROWS(Group, norm->affine)

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  const int64_t groups = values[kGroups].i;
  if (groups < 1 || dim % groups != 0) {
    if (cap > 0) {
      snprintf(err, cap, "groups is %lld, and must divide dim, which is %u", (long long)groups,
               dim);
    }
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  *norm = (plumb_norm_instance){
      .dim = dim,
      .groups = (size_t)groups,
      .eps = values[kEps].f,
      .affine = values[kAffine].i != 0,
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
  out->n_params = norm->affine ? 2 : 0;
  out->params = norm->params;
  out->saved_per_row = (uint32_t)(2 * norm->groups); /* mean and r of each piece */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "group_norm",
    .name = "GroupNorm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "Layer norm on each of `groups` pieces of the row; Wu & He 2018, arXiv:1803.08494, per "
        "token.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = GroupForward,
    .backward = GroupBackward,
    .get_extension = GroupGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
