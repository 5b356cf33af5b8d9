// my_norm: y = g x / (mean|x| + eps), a norm by the mean absolute value of the row, with a learned
// gain g. Change it for your own norm: the mathematics is in FORWARD_My and BACKWARD_My, the
// attributes are in kAttributes, and the learned parameters in Create.
//
// With <a> the mean of a over the row, s = 1 / (<|x|> + eps), h = x s:
//     y = g h
// Let u = dy g, the gradient of h. As ds/dx_j = -s^2 sign(x_j) / dim,
//     dx_j = s u_j + sum_i(u_i x_i) ds/dx_j = s (u_j - sign(x_j) <u h>)
//     dgain = sum over rows of dy h
// forward() saves s of each row; backward() reads x again.
#include <cfloat>
#include <cstdint>
#include <new>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("org.example.my_norm");

struct plumb_norm_instance {
  double eps;
  plumb_tensor_def gain;
};

// -- The mathematics
// -------------------------------------------------------------------------------
//
// plumb/norm_rows.h documents the macros. x and dy are the element's values and i is its index;
// `real` is the type to compute with, float or double. Expressions may call templates of yours that
// are declared PLUMB_ROWS_INLINE.

#define FORWARD_My                                          \
  const real* gain = PLUMB_PARAM(0);                        \
  PLUMB_EACH_ROW {                                          \
    real sum;                                               \
    PLUMB_SUM(real, sum, 0, dim, plumb_abs(x));             \
    const real s = 1 / (sum / (real)dim + (real)norm->eps); \
    PLUMB_SAVE(0, s);                                       \
    PLUMB_Y(0, dim, (x * s * gain[i]));                     \
  }

// Smaller numbers count as 0: hosts may flush denormals to zero.
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

// -- Attributes and learned parameters
// -------------------------------------------------------------

namespace {

enum { kEps, kAttributeCount };

const plumb_attr_def kAttributes[kAttributeCount] = {
    // name, doc, type, flags, min, max, default, choices
    {"eps",
     "Added to the mean absolute value.",
     PLUMB_ATTR_F64,
     0,
     1e-12,
     1,
     {1e-5, 0, nullptr},
     nullptr},
};

// Functions of the table must let no exception out, so memory comes from the `new` that throws
// none.
plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char* err, size_t cap) {
  (void)err;
  (void)cap;
  auto* norm = new (std::nothrow) plumb_norm_instance();
  if (norm == nullptr) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->eps = values[kEps].f;
  norm->gain.name = "weight";  // key in checkpoints: never change it
  norm->gain.doc = "The gain.";
  norm->gain.ndim = 1;
  norm->gain.dims[0] = dim;
  norm->gain.init = PLUMB_INIT_ONES;
  norm->gain.lr_scale = 1;
  *out = norm;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* norm) { delete norm; }

plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->gain;
  out->saved_per_row = 1;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

// -- The table
// -------------------------------------------------------------------------------------

const plumb_norm_plugin kNorm = {
    sizeof(plumb_norm_plugin),
    0,  // min_host_minor
    "org.example.my_norm",
    "my_norm",
    "0.1.0",  // version
    "",       // vendor
    "",       // license
    "y = g x / (mean|x| + eps).",
    PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    PLUMB_ROWS_DTYPES,
    kAttributeCount,
    sizeof(plumb_attr_def),
    kAttributes,
    nullptr,  // available
    Create,
    Destroy,
    Layout,
    MyForward,
    MyBackward,
    nullptr,         // stats_partial
    nullptr,         // stats_combine
    nullptr,         // stats_finalize
    MyGetExtension,  // the residual addition fused
};

}  // namespace

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &kNorm : nullptr;
}
