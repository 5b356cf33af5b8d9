/* SPDX-License-Identifier: Apache-2.0 */
/* deviation_rows: y = g (x - m) / (<|x - m|> + eps) + b, m = <x>: a layer norm with the mean
 * absolute deviation, like one that an author derives from the template, on plumb/norm_rows.h.
 *
 * With s = 1 / (<|x - m|> + eps), h = (x - m) s, u = dy g, z = sign(x - m):
 *     dx = s (u - <u> - (z - <z>) <u h>),   dg = sum over rows of dy h,   db = sum over rows of dy
 * As in layer_norm, m is x_0 + <x - x_0>, so that a row of equal numbers has deviation 0. */
#include <float.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("org.example.deviation_rows");

enum { kGain, kBias, kParamCount };

struct plumb_norm_instance {
  double eps;
  plumb_tensor_def params[kParamCount];
};

/* Numbers that are too small to be normal count as 0, because hosts may treat denormals as
   zeros. */
#define LEAST (sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN)
#define SIGN(v) ((v) >= LEAST ? (real)1 : (v) <= -LEAST ? (real)-1 : (real)0)

#define FORWARD_Deviation                               \
  const real* gain = PLUMB_PARAM(kGain);                \
  const real* bias = PLUMB_PARAM(kBias);                \
  PLUMB_EACH_ROW {                                      \
    const real first = PLUMB_X(0);                      \
    real sum, sizes;                                    \
    PLUMB_SUM(real, sum, 0, dim, x - first);            \
    const real m = first + sum / (real)dim;             \
    PLUMB_SUM(real, sizes, 0, dim, plumb_abs(x - m));   \
    const real l1 = sizes / (real)dim;                  \
    const real s = 1 / (l1 + (real)norm->eps);          \
    PLUMB_SAVE(0, s);                                   \
    PLUMB_SAVE(1, m);                                   \
    PLUMB_Y(0, dim, ((x - m) * s * gain[i] + bias[i])); \
  }

#define BACKWARD_Deviation                                                                   \
  const real* gain = PLUMB_PARAM(kGain);                                                     \
  real* dgain = PLUMB_DPARAM(kGain);                                                         \
  real* dbias = PLUMB_DPARAM(kBias);                                                         \
  PLUMB_EACH_ROW {                                                                           \
    const real s = PLUMB_SAVED(0), m = PLUMB_SAVED(1);                                       \
    real u, uh, signs;                                                                       \
    PLUMB_SUM2(real, u, uh, 0, dim, (dy * gain[i]), (dy * gain[i] * ((x - m) * s)));         \
    PLUMB_SUM(real, signs, 0, dim, SIGN(x - m));                                             \
    const real mean_u = u / (real)dim, mean_uh = uh / (real)dim, mean_z = signs / (real)dim; \
    PLUMB_DX(0, dim, (s * (dy * gain[i] - mean_u - (SIGN(x - m) - mean_z) * mean_uh)),       \
             dgain[i] += dy * ((x - m) * s);                                                 \
             dbias[i] += dy);                                                                \
  }

PLUMB_NORM_ROWS(Deviation, 0)

static const plumb_attr_def kAttributes[] = {
    {
        .name = "eps",
        .doc = "Added to the mean absolute deviation.",
        .type = PLUMB_ATTR_F64,
        .min = 1e-12,
        .max = 1,
        .def = {.f = 1e-5},
    },
};

static plumb_tensor_def Param(const char* name, const char* doc, uint32_t dim, uint32_t init) {
  return (plumb_tensor_def){
      .name = name, .doc = doc, .ndim = 1, .dims = {dim}, .init = init, .lr_scale = 1};
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  if (!(values[0].f >= 1e-12 && values[0].f <= 1)) {
    snprintf(err, cap, "eps must be in 1e-12..1 and is %g", values[0].f);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = (plumb_norm_instance*)malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->eps = values[0].f;
  norm->params[kGain] = Param("weight", "The gain.", dim, PLUMB_INIT_ONES);
  norm->params[kBias] = Param("bias", "The bias.", dim, PLUMB_INIT_ZEROS);
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = kParamCount;
  out->params = norm->params;
  out->saved_per_row = 2;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "org.example.deviation_rows",
    .name = "Mean absolute deviation",
    .version = "0.1.0",
    .vendor = "",
    .license = "",
    .doc = "y = g (x - m) / (mean|x - m| + eps) + b.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = 1,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = kAttributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = DeviationForward,
    .backward = DeviationBackward,
    .get_extension = DeviationGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
