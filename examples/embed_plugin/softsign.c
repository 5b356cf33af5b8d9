/* SPDX-License-Identifier: Apache-2.0 */
/* softsign: y = g x / (1 + |x|), elementwise, with a learned gain g. A norm without statistics that
 * is part of a program: a table of functions, without a plugin file.
 *
 *     dx = dy g / (1 + |x|)^2
 *     dg = sum over rows of dy x / (1 + |x|) */
#include "softsign.h"

#include <math.h>
#include <stdlib.h>

struct plumb_norm_instance {
  uint32_t dim;
  plumb_tensor_def gain;
};

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  plumb_norm_instance* const norm = calloc(1, sizeof(*norm));
  (void)host, (void)values, (void)err, (void)cap;
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->dim = dim;
  norm->gain = (plumb_tensor_def){
      .name = "weight", .doc = "The gain.", .ndim = 1, .init = PLUMB_INIT_ONES, .lr_scale = 1};
  norm->gain.dims[0] = dim;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->gain;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  const float* const gain = call->params[0];
  for (int64_t r = r0; r < r1; ++r) {
    const float* const x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    float* const y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    for (uint32_t i = 0; i < norm->dim; ++i) y[i] = gain[i] * (x[i] / (1 + fabsf(x[i])));
  }
  return PLUMB_OK;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const float* const gain = call->params[0];
  float* const dgain = call->dparams[0];
  const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  for (int64_t r = r0; r < r1; ++r) {
    const float* const x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    const float* const dy = PLUMB_CONST_ROW(float, call->dy, call->dy_pitch, r);
    float* const dx = PLUMB_ROW(float, call->dx, call->dx_pitch, r);
    for (uint32_t i = 0; i < norm->dim; ++i) {
      const float s = 1 / (1 + fabsf(x[i]));
      const float d = dy[i] * gain[i] * s * s;
      dgain[i] += dy[i] * (x[i] * s);
      dx[i] = accumulate ? dx[i] + d : d;
    }
  }
  return PLUMB_OK;
}

const plumb_norm_plugin softsign_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "org.example.softsign",
    .name = "softsign",
    .version = "1.0",
    .vendor = "",
    .license = "",
    .doc = "y = g x / (1 + |x|).",
    .flags = PLUMB_NORM_NAN_ISOLATED,
    .dtypes = PLUMB_DTYPE_F32,
    .attr_stride = sizeof(plumb_attr_def),
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};
