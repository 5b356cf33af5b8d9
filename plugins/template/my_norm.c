/* my_norm: y = g x / (mean|x| + eps), a norm by the mean absolute value of the row, with a learned
 * gain g. Change it for your own norm: the mathematics is in FORWARD_My and BACKWARD_My, the
 * attributes are in kAttributes, and the learned parameters in Create.
 *
 * With <a> the mean of a over the row, s = 1 / (<|x|> + eps), h = x s:
 *     y = g h
 * Let u = dy g, the gradient of h. As ds/dx_j = -s^2 sign(x_j) / dim,
 *     dx_j = s u_j + sum_i(u_i x_i) ds/dx_j = s (u_j - sign(x_j) <u h>)
 *     dgain = sum over rows of dy h
 * forward() saves s of each row; backward() reads x again.
 */
#include <float.h>
#include <stdint.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("org.example.my_norm");

struct plumb_norm_instance {
  double eps;
  plumb_tensor_def gain;
};

/* -- The mathematics ----------------------------------------------------------------------------
 *
 * plumb/norm_rows.h documents the macros. x and dy are the element's values and i is its index;
 * `real` is the type to compute with, float or double. */

#define FORWARD_My                                          \
  const real* gain = PLUMB_PARAM(0);                        \
  PLUMB_EACH_ROW {                                          \
    real sum;                                               \
    PLUMB_SUM(real, sum, 0, dim, plumb_abs(x));             \
    const real s = 1 / (sum / (real)dim + (real)norm->eps); \
    PLUMB_SAVE(0, s);                                       \
    PLUMB_Y(0, dim, (x * s * gain[i]));                     \
  }

/* Smaller numbers count as 0: hosts may flush denormals to zero. */
#define LEAST (sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN)
#define SIGN(v) ((v) >= LEAST ? (real)1 : (v) <= -LEAST ? (real)-1 : (real)0)

#define BACKWARD_My                                                                       \
  const real* gain = PLUMB_PARAM(0);                                                      \
  real* dgain = PLUMB_DPARAM(0);                                                          \
  PLUMB_EACH_ROW {                                                                        \
    const real s = PLUMB_SAVED(0);                                                        \
    real sum;                                                                             \
    PLUMB_SUM(real, sum, 0, dim, (dy * gain[i] * (x * s)));                               \
    const real mean_uh = sum / (real)dim;                                                 \
    PLUMB_DX(0, dim, (s * (dy * gain[i] - SIGN(x) * mean_uh)), dgain[i] += dy * (x * s)); \
  }

PLUMB_NORM_ROWS(My, 0)

/* -- Attributes and learned parameters -------------------------------------------------------- */

enum { kEps, kAttributeCount };

static const plumb_attr_def kAttributes[kAttributeCount] = {
    {
        .name = "eps",
        .doc = "Added to the mean absolute value.",
        .type = PLUMB_ATTR_F64,
        .min = 1e-12,
        .max = 1,
        .def = {.f = 1e-5},
    },
};

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  (void)err;
  (void)cap;
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->eps = values[kEps].f;
  norm->gain.name = "weight"; /* key in checkpoints: never change it */
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

/* -- The table ----------------------------------------------------------------------------------
 */

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .min_host_minor = 0,
    .id = "org.example.my_norm",
    .name = "my_norm",
    .version = "0.1.0",
    .vendor = "",
    .license = "",
    .doc = "y = g x / (mean|x| + eps).",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = kAttributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = MyForward,
    .backward = MyBackward,
    .get_extension = MyGetExtension, /* the residual addition fused */
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
