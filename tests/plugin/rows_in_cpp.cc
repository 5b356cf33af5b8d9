// SPDX-License-Identifier: Apache-2.0
// An RMSNorm in C++11 that uses plumb/norm_rows.h with a template in its expressions. The
// conformance test runs it, and norm_header_compiles.sh compiles it with strict warnings.
#include <new>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("org.example.rows_in_cpp");

struct plumb_norm_instance {
  plumb_tensor_def gain;
};

template <class Real>
PLUMB_ROWS_INLINE Real Scaled(Real x, Real s) {
  return x * s;
}

#define FORWARD_Rms                                              \
  const real* gain = PLUMB_PARAM(0);                             \
  PLUMB_EACH_ROW {                                               \
    real sum;                                                    \
    PLUMB_SUM(real, sum, 0, dim, (x * x));                       \
    const real s = 1 / plumb_sqrt(sum / (real)dim + (real)1e-5); \
    PLUMB_SAVE(0, s);                                            \
    PLUMB_Y(0, dim, (Scaled<real>(x, s) * gain[i]));             \
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

namespace {

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value*,
                    plumb_norm_instance** out, char*, size_t) {
  plumb_norm_instance* norm = new (std::nothrow) plumb_norm_instance();
  if (norm == nullptr) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->gain.name = "weight";
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

const plumb_norm_plugin kNorm = {
    sizeof(plumb_norm_plugin),
    0,  // min_host_minor
    "org.example.rows_in_cpp",
    "RMSNorm",
    "1.0.0",
    "",
    "",
    "y = g x / sqrt(mean(x^2) + 1e-5).",
    PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    PLUMB_ROWS_DTYPES,
    0,  // attributes
    sizeof(plumb_attr_def),
    nullptr,
    nullptr,  // available
    Create,
    Destroy,
    Layout,
    RmsForward,
    RmsBackward,
    nullptr,  // stats_partial
    nullptr,  // stats_combine
    nullptr,  // stats_finalize
    RmsGetExtension,
};

}  // namespace

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &kNorm : nullptr;
}
