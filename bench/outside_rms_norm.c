/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm, y = g x / sqrt(<x^2> + 1e-5), as somebody else would write it with plumb/norm_rows.h.
 * norm_benchmark compares the shipped rms_norm with it. */
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("org.example.outside_rms_norm");

struct plumb_norm_instance {
  plumb_tensor_def gain;
};

#define FORWARD_Rms                                              \
  const real* gain = PLUMB_PARAM(0);                             \
  PLUMB_EACH_ROW {                                               \
    real sum;                                                    \
    PLUMB_SUM(real, sum, 0, dim, (x * x));                       \
    const real s = 1 / plumb_sqrt(sum / (real)dim + (real)1e-5); \
    PLUMB_SAVE(0, s);                                            \
    PLUMB_Y(0, dim, (x * s * gain[i]));                          \
  }
#define BACKWARD_Rms                                                                 \
  const real* gain = PLUMB_PARAM(0);                                                 \
  real* dgain = PLUMB_DPARAM(0);                                                     \
  PLUMB_EACH_ROW {                                                                   \
    const real s = PLUMB_SAVED(0);                                                   \
    real sum;                                                                        \
    PLUMB_SUM(real, sum, 0, dim, (dy * gain[i] * (x * s)));                          \
    const real mean = sum / (real)dim;                                               \
    PLUMB_DX(0, dim, (s * (dy * gain[i] - x * s * mean)), dgain[i] += dy * (x * s)); \
  }
PLUMB_NORM_ROWS(Rms, 0)

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host, (void)values, (void)err, (void)cap;
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->gain.name = "weight";
  norm->gain.doc = "The gain.";
  norm->gain.ndim = 1;
  norm->gain.dims[0] = dim;
  norm->gain.init = PLUMB_INIT_ONES;
  norm->gain.lr_scale = 1;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->gain;
  out->saved_per_row = 1;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "org.example.outside_rms_norm",
    .name = "RMSNorm",
    .version = "1.0.0",
    .vendor = "",
    .license = "",
    .doc = "y = g x / sqrt(mean(x^2) + 1e-5).",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .attr_stride = sizeof(plumb_attr_def),
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = RmsForward,
    .backward = RmsBackward,
    .get_extension = RmsGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
