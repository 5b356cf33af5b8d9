// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/tanh_norm_plugin.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

struct plumb_norm_instance {
  uint32_t dim;
  plumb_tensor_def params[2];
};

namespace plumb {
namespace {

plumb_tensor_def Param(const char* name, uint32_t init) {
  plumb_tensor_def def{};
  def.name = name;
  def.doc = "";
  def.init = init;
  def.lr_scale = 1;
  return def;
}

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value*,
                    plumb_norm_instance** out, char*, size_t) {
  *out = new plumb_norm_instance{
      dim, {Param("scale", PLUMB_INIT_ONES), Param("shift", PLUMB_INIT_ZEROS)}};
  (*out)->params[1].ndim = 1;
  (*out)->params[1].dims[0] = dim;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 2;
  out->params = instance->params;
  out->backward_needs = PLUMB_BACKWARD_READS_X | PLUMB_BACKWARD_READS_Y;
  out->scratch_bytes = sizeof(double);
  out->scratch_bytes_per_row = instance->dim * sizeof(double);
  return PLUMB_OK;
}

template <class T>
const T* Row(const void* base, int64_t pitch, int64_t r) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + r * pitch);
}
template <class T>
T* Row(void* base, int64_t pitch, int64_t r) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + r * pitch);
}

template <class T>
plumb_status ForwardAs(const plumb_norm_call* call, int64_t r0, int64_t r1) {
  const T scale = *static_cast<const T*>(call->params[0]);
  const T* shift = static_cast<const T*>(call->params[1]);
  T* z = static_cast<T*>(call->scratch);
  for (int64_t r = r0; r < r1; ++r, z += call->dim) {
    const T* x = Row<T>(call->x, call->x_pitch, r);
    T* y = Row<T>(call->y, call->y_pitch, r);
    for (uint32_t i = 0; i < call->dim; ++i) {
      if (std::isnan(x[i])) {
        std::snprintf(call->err, call->err_cap, "row %lld is not a number",
                      static_cast<long long>(r));
        return PLUMB_STATUS_INVALID_ARGUMENT;
      }
      z[i] = scale * x[i] + shift[i];
    }
    for (uint32_t i = 0; i < call->dim; ++i) y[i] = std::tanh(z[i]);
  }
  *z = 0;  // the constant part of the scratch
  return PLUMB_OK;
}

template <class T>
plumb_status BackwardAs(const plumb_norm_call* call, int64_t r0, int64_t r1) {
  const T scale = *static_cast<const T*>(call->params[0]);
  T* dscale = static_cast<T*>(call->dparams[0]);
  T* dshift = static_cast<T*>(call->dparams[1]);
  T* dz = static_cast<T*>(call->scratch);
  const bool accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  for (int64_t r = r0; r < r1; ++r, dz += call->dim) {
    const T* x = Row<T>(call->x, call->x_pitch, r);
    const T* y = Row<T>(static_cast<const void*>(call->y), call->y_pitch, r);
    const T* dy = Row<T>(call->dy, call->dy_pitch, r);
    T* dx = Row<T>(call->dx, call->dx_pitch, r);
    for (uint32_t i = 0; i < call->dim; ++i) dz[i] = dy[i] * (1 - y[i] * y[i]);
    double sum = 0;
    for (uint32_t i = 0; i < call->dim; ++i) {
      const T gradient = scale * dz[i];
      dx[i] = accumulate ? dx[i] + gradient : gradient;
      dshift[i] += dz[i];
      sum += static_cast<double>(dz[i] * x[i]);
    }
    *dscale += static_cast<T>(sum);
  }
  *dz = 0;
  return PLUMB_OK;
}

plumb_status Forward(const plumb_norm_instance*, const plumb_norm_call* call, int64_t r0,
                     int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F64) return ForwardAs<double>(call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_F32) return ForwardAs<float>(call, r0, r1);
  return PLUMB_STATUS_UNIMPLEMENTED;
}

plumb_status Backward(const plumb_norm_instance*, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F64) return BackwardAs<double>(call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_F32) return BackwardAs<float>(call, r0, r1);
  return PLUMB_STATUS_UNIMPLEMENTED;
}

// Computes the sum in f32, the only type that the extension supports.
plumb_status ForwardResidual(const plumb_norm_instance* instance, const plumb_norm_call* call,
                             const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  for (int64_t r = r0; r < r1; ++r) {
    const float* x = Row<float>(call->x, call->x_pitch, r);
    const float* res = Row<float>(residual->res, residual->res_pitch, r);
    float* sum = Row<float>(residual->sum, residual->sum_pitch, r);
    for (uint32_t i = 0; i < call->dim; ++i) sum[i] = x[i] + res[i];
  }
  plumb_norm_call of_sum = *call;
  of_sum.x = residual->sum;
  of_sum.x_pitch = residual->sum_pitch;
  return Forward(instance, &of_sum, r0, r1);
}

plumb_status BackwardResidual(const plumb_norm_instance* instance, const plumb_norm_call* call,
                              const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  plumb_norm_call adding = *call;
  for (int64_t r = r0; r < r1 && residual->dsum != nullptr; ++r) {
    const float* dsum = Row<float>(residual->dsum, residual->dsum_pitch, r);
    std::memmove(Row<float>(call->dx, call->dx_pitch, r), dsum, call->dim * sizeof(float));
    adding.flags |= PLUMB_CALL_DX_ACCUMULATE;
  }
  return Backward(instance, &adding, r0, r1);
}

const plumb_norm_residual kResidual = {sizeof(plumb_norm_residual), 0, ForwardResidual,
                                       BackwardResidual};

plumb_norm_plugin Table(const char* id, uint32_t dtypes) {
  plumb_norm_plugin table{};
  table.struct_size = sizeof(table);
  table.id = table.name = id;
  table.version = "1";
  table.vendor = table.license = table.doc = "";
  table.dtypes = dtypes;
  table.attr_stride = sizeof(plumb_attr_def);
  table.create = Create;
  table.destroy = Destroy;
  table.layout = Layout;
  table.forward = Forward;
  table.backward = Backward;
  return table;
}

}  // namespace

const plumb_norm_plugin* TanhNorm() {
  static const plumb_norm_plugin table = Table("test.tanh", PLUMB_DTYPE_F32 | PLUMB_DTYPE_F64);
  return &table;
}

const plumb_norm_plugin* TanhNormWithoutF64() {
  static const plumb_norm_plugin table = Table("test.tanh_f32", PLUMB_DTYPE_F32);
  return &table;
}

const plumb_norm_plugin* TanhNormWithResidual() {
  static const plumb_norm_plugin table = [] {
    plumb_norm_plugin norm = Table("test.tanh_residual", PLUMB_DTYPE_F32 | PLUMB_DTYPE_F64);
    norm.get_extension = [](const char* id) -> const void* {
      return std::strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &kResidual : nullptr;
    };
    return norm;
  }();
  return &table;
}

}  // namespace plumb
