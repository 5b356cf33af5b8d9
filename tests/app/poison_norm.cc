// SPDX-License-Identifier: Apache-2.0
#include "tests/app/poison_norm.h"

#include <algorithm>
#include <limits>

struct plumb_norm_instance {};

namespace plumb {
namespace {

plumb_status Create(const plumb_host*, uint32_t, const plumb_attr_value*, plumb_norm_instance** out,
                    char*, size_t) {
  *out = new plumb_norm_instance;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance*, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  return PLUMB_OK;
}

plumb_status Forward(const plumb_norm_instance*, const plumb_norm_call* c, int64_t r0, int64_t r1) {
  for (int64_t r = r0; r < r1; ++r) {
    float* y = PLUMB_ROW(float, c->y, c->y_pitch, r);
    std::copy_n(PLUMB_CONST_ROW(float, c->x, c->x_pitch, r), c->dim, y);
    if (c->rows == poison_rows) std::fill_n(y, c->dim, std::numeric_limits<float>::quiet_NaN());
  }
  return PLUMB_OK;
}

plumb_status Backward(const plumb_norm_instance*, const plumb_norm_call* c, int64_t r0,
                      int64_t r1) {
  for (int64_t r = r0; r < r1; ++r) {
    const float* dy = PLUMB_CONST_ROW(float, c->dy, c->dy_pitch, r);
    float* dx = PLUMB_ROW(float, c->dx, c->dx_pitch, r);
    for (uint32_t i = 0; i < c->dim; ++i) {
      dx[i] = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0 ? dx[i] + dy[i] : dy[i];
    }
  }
  return PLUMB_OK;
}

}  // namespace

const plumb_norm_plugin* PoisonNorm() {
  static const plumb_norm_plugin table = [] {
    plumb_norm_plugin norm{};
    norm.struct_size = sizeof(norm);
    norm.id = norm.name = "test.poison";
    norm.version = "1";
    norm.vendor = norm.license = norm.doc = "";
    norm.dtypes = PLUMB_DTYPE_F32;
    norm.attr_stride = sizeof(plumb_attr_def);
    norm.create = Create;
    norm.destroy = Destroy;
    norm.layout = Layout;
    norm.forward = Forward;
    norm.backward = Backward;
    return norm;
  }();
  return &table;
}

}  // namespace plumb
