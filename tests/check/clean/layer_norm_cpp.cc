// SPDX-License-Identifier: Apache-2.0
// layer_norm_cpp: y = g (x - mean) / sqrt(variance + eps) + b, in the style of a C++ author:
// templates, no C macros, and no exception leaves the plugin.
//
// With h = (x - mean) r, u = dy g: dx = r (u - <u> - h <u h>), dg += dy h, db += dy.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <new>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.layer_norm_cpp");

struct plumb_norm_instance {
  double eps;
  bool has_bias;
  std::array<plumb_tensor_def, 2> params;
};

namespace {

// The types in memory and in computations.
struct F32 {
  using Element = float;
  using Real = float;
  static Real Load(Element v) { return v; }
  static Element Store(Real v) { return v; }
};
struct Bf16 {
  using Element = plumb_bf16;
  using Real = float;
  static Real Load(Element v) { return plumb_bf16_to_float(v); }
  static Element Store(Real v) { return plumb_bf16_from_float(v); }
};
struct F64 {
  using Element = double;
  using Real = double;
  static Real Load(Element v) { return v; }
  static Element Store(Real v) { return v; }
};

template <typename T>
const T* Row(const void* base, int64_t pitch, int64_t r) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + r * pitch);
}
template <typename T>
T* Row(void* base, int64_t pitch, int64_t r) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + r * pitch);
}

template <typename Type>
void ForwardRows(const plumb_norm_instance& norm, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  using Real = typename Type::Real;
  const auto* gain = static_cast<const Real*>(call.params[0]);
  const auto* bias = norm.has_bias ? static_cast<const Real*>(call.params[1]) : nullptr;
  for (int64_t r = r0; r < r1; ++r) {
    const auto* x = Row<typename Type::Element>(call.x, call.x_pitch, r);
    auto* y = Row<typename Type::Element>(call.y, call.y_pitch, r);
    double sum = 0;
    for (uint32_t i = 0; i < call.dim; ++i) sum += static_cast<double>(Type::Load(x[i]));
    const double mean = sum / call.dim;
    double squares = 0;
    for (uint32_t i = 0; i < call.dim; ++i) {
      const double d = static_cast<double>(Type::Load(x[i])) - mean;
      squares += d * d;
    }
    const double rstd = 1 / std::sqrt(squares / call.dim + norm.eps);
    if (call.saved != nullptr) {
      Real* saved = Row<Real>(call.saved, call.saved_pitch, r);
      saved[0] = static_cast<Real>(mean);
      saved[1] = static_cast<Real>(rstd);
    }
    for (uint32_t i = 0; i < call.dim; ++i) {
      const double h = (static_cast<double>(Type::Load(x[i])) - mean) * rstd;
      const Real scaled = static_cast<Real>(h) * gain[i];
      y[i] = Type::Store(bias != nullptr ? scaled + bias[i] : scaled);
    }
  }
}

template <typename Type>
void BackwardRows(const plumb_norm_instance& norm, const plumb_norm_call& call, int64_t r0,
                  int64_t r1) {
  using Real = typename Type::Real;
  const auto* gain = static_cast<const Real*>(call.params[0]);
  auto* dgain = static_cast<Real*>(call.dparams[0]);
  auto* dbias = norm.has_bias ? static_cast<Real*>(call.dparams[1]) : nullptr;
  const bool add = (call.flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  for (int64_t r = r0; r < r1; ++r) {
    const auto* x = Row<typename Type::Element>(call.x, call.x_pitch, r);
    const auto* dy = Row<typename Type::Element>(call.dy, call.dy_pitch, r);
    auto* dx = Row<typename Type::Element>(call.dx, call.dx_pitch, r);
    const Real* saved = Row<Real>(static_cast<const void*>(call.saved), call.saved_pitch, r);
    const Real mean = saved[0], rstd = saved[1];
    double sum_u = 0, sum_uh = 0;
    for (uint32_t i = 0; i < call.dim; ++i) {
      const auto u = static_cast<double>(Type::Load(dy[i]) * gain[i]);
      sum_u += u;
      sum_uh += u * static_cast<double>((Type::Load(x[i]) - mean) * rstd);
    }
    const Real mean_u = static_cast<Real>(sum_u / call.dim);
    const Real mean_uh = static_cast<Real>(sum_uh / call.dim);
    for (uint32_t i = 0; i < call.dim; ++i) {
      const Real g = Type::Load(dy[i]);
      const Real h = (Type::Load(x[i]) - mean) * rstd;
      const Real gradient = rstd * (g * gain[i] - mean_u - h * mean_uh);
      dgain[i] += g * h;
      if (dbias != nullptr) dbias[i] += g;
      dx[i] = Type::Store(add ? Type::Load(dx[i]) + gradient : gradient);
    }
  }
}

plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call, int64_t r0,
                     int64_t r1) {
  switch (call->dtype) {
    case PLUMB_DTYPE_F32:
      ForwardRows<F32>(*norm, *call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_BF16:
      ForwardRows<Bf16>(*norm, *call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_F64:
      ForwardRows<F64>(*norm, *call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_STATUS_UNIMPLEMENTED;
  }
}

plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
  switch (call->dtype) {
    case PLUMB_DTYPE_F32:
      BackwardRows<F32>(*norm, *call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_BF16:
      BackwardRows<Bf16>(*norm, *call, r0, r1);
      return PLUMB_OK;
    case PLUMB_DTYPE_F64:
      BackwardRows<F64>(*norm, *call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_STATUS_UNIMPLEMENTED;
  }
}

enum { kEps, kBias, kAttributeCount };

const plumb_attr_def kAttributes[kAttributeCount] = {
    {"eps", "Added to the variance.", PLUMB_ATTR_F64, 0, 1e-12, 1, {1e-5, 0, nullptr}, nullptr},
    {"bias", "Adds a bias.", PLUMB_ATTR_BOOL, 0, 0, 1, {0, 1, nullptr}, nullptr},
};

plumb_tensor_def Param(const char* name, const char* doc, uint32_t dim, uint32_t init) {
  plumb_tensor_def def = {};
  def.name = name;
  def.doc = doc;
  def.ndim = 1;
  def.dims[0] = dim;
  def.init = init;
  def.lr_scale = 1;
  return def;
}

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char* err, size_t cap) {
  const double eps = values[kEps].f;
  if (!(eps >= 1e-12 && eps <= 1)) {
    std::snprintf(err, cap, "eps must be in 1e-12..1 and is %g", eps);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  auto* norm =
      new (std::nothrow) plumb_norm_instance{eps,
                                             values[kBias].i != 0,
                                             {Param("weight", "The gain.", dim, PLUMB_INIT_ONES),
                                              Param("bias", "The bias.", dim, PLUMB_INIT_ZEROS)}};
  if (norm == nullptr) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  *out = norm;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* norm) { delete norm; }

plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = norm->has_bias ? 2 : 1;
  out->params = norm->params.data();
  out->saved_per_row = 2;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

const plumb_norm_plugin kNorm = {
    sizeof(plumb_norm_plugin),
    0,
    "org.example.layer_norm_cpp",
    "LayerNorm in C++",
    "1.0.0",
    "Example",
    "Apache-2.0",
    "Ba, Kiros & Hinton 2016, with or without a bias.",
    PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
        PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    kAttributeCount,
    sizeof(plumb_attr_def),
    kAttributes,
    nullptr,
    Create,
    Destroy,
    Layout,
    Forward,
    Backward,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &kNorm : nullptr;
}
