// rms_norm: y = g * x / rms(x), Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq.
// 4, with eps inside the root as LLaMA has it. g is the weight, or 1 + weight (`unit_offset`, as in
// Gemma: weight decay and zero initial values then pull the gain towards 1), or 1 (`affine:
// false`).
//
// With <a> the mean of a over the row, r = (<x^2> + eps)^(-1/2), h = x r:
//     y = g h
// Let u = dy g, the gradient of h. As dr/dx_j = -r^3 x_j / dim,
//     dx_j = r u_j + sum_i(u_i x_i) dr/dx_j = r (u_j - h_j <u h>)
//     dweight = sum over rows of dy h        (g and weight differ by a constant)
// forward() keeps r for each row; backward() reads x again and makes h from it.
//
// float runs in vectors, through Highway; double, which serves gradient checks, in plain loops.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

#include "plumb/norm_plugin.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rms_norm.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

#ifndef PLUMB_RMS_NORM_SHARED
#define PLUMB_RMS_NORM_SHARED

enum class Gain { kNone, kWeight, kOnePlusWeight };

struct plumb_norm_instance {
  using RowsFunction = void (*)(const plumb_norm_instance&, const plumb_norm_call&, int64_t,
                                int64_t);
  size_t dim;
  double eps;
  Gain gain;
  plumb_tensor_def weight;
  RowsFunction forward_f32, backward_f32;  // for this machine's instruction set
};

namespace {

template <class T>
const T* Row(const void* base, int64_t pitch, int64_t r) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + r * pitch);
}
template <class T>
T* Row(void* base, int64_t pitch, int64_t r) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + r * pitch);
}

}  // namespace
#endif  // PLUMB_RMS_NORM_SHARED

HWY_BEFORE_NAMESPACE();
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// How the elements at `p` are read and written: a whole vector, or the `n` that are left of a row,
// the other lanes being zero. Rows are never touched outside their elements.
struct Whole {
  HWY_INLINE Vector Load(const float* p) const { return hn::LoadU(Tag(), p); }
  HWY_INLINE void Store(Vector v, float* p) const { hn::StoreU(v, Tag(), p); }
};
struct Part {
  size_t n;
  HWY_INLINE Vector Load(const float* p) const {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    return hn::MaskedLoad(hn::FirstN(Tag(), n), Tag(), p);
#else  // no load that leaves the masked lanes alone
    HWY_ALIGN float lanes[hn::MaxLanes(Tag())] = {};
    for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
    return hn::Load(Tag(), lanes);
#endif
  }
  HWY_INLINE void Store(Vector v, float* p) const {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    hn::BlendedStore(v, hn::FirstN(Tag(), n), Tag(), p);
#else
    HWY_ALIGN float lanes[hn::MaxLanes(Tag())];
    hn::Store(v, Tag(), lanes);
    for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
  }
};

HWY_INLINE float SumLanes(Vector v) { return hn::GetLane(hn::SumOfLanes(Tag(), v)); }

// Four sums side by side: the additions of one would wait for each other. The order of the
// additions depends on `dim` alone.
HWY_INLINE float SumOfSquares(const float* x, size_t dim) {
  const size_t lanes = hn::Lanes(Tag());
  Vector s0 = hn::Zero(Tag()), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    const Vector a = Whole().Load(x + i), b = Whole().Load(x + i + lanes);
    const Vector c = Whole().Load(x + i + 2 * lanes), d = Whole().Load(x + i + 3 * lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(d, d, s3);
  }
  for (; i + lanes <= dim; i += lanes) {
    const Vector a = Whole().Load(x + i);
    s0 = hn::MulAdd(a, a, s0);
  }
  if (i < dim) {
    const Vector a = Part{dim - i}.Load(x + i);
    s1 = hn::MulAdd(a, a, s1);
  }
  return SumLanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// The gain of the elements at weight + i.
template <Gain kGain, class Access>
HWY_INLINE Vector LoadGain(Access access, const float* weight, size_t i) {
  const Vector w = access.Load(weight + i);
  return kGain == Gain::kOnePlusWeight ? hn::Add(w, hn::Set(Tag(), 1.0f)) : w;
}

template <Gain kGain, class Access>
HWY_INLINE void ScaleAt(Access access, const float* x, Vector r, const float* weight, float* y,
                        size_t i) {
  Vector h = hn::Mul(access.Load(x + i), r);
  if (kGain != Gain::kNone) h = hn::Mul(h, LoadGain<kGain>(access, weight, i));
  access.Store(h, y + i);
}

template <Gain kGain>
void ForwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  const size_t lanes = hn::Lanes(Tag()), dim = instance.dim;
  const float inverse_dim = 1.0f / static_cast<float>(dim), eps = static_cast<float>(instance.eps);
  const float* weight = kGain == Gain::kNone ? nullptr : static_cast<const float*>(call.params[0]);
  for (int64_t row = r0; row < r1; ++row) {
    const float* x = Row<float>(call.x, call.x_pitch, row);
    float* y = Row<float>(call.y, call.y_pitch, row);
    const float r = 1.0f / std::sqrt(SumOfSquares(x, dim) * inverse_dim + eps);
    if (call.saved != nullptr) *Row<float>(call.saved, call.saved_pitch, row) = r;
    const Vector rv = hn::Set(Tag(), r);
    size_t i = 0;
    for (; i + lanes <= dim; i += lanes) ScaleAt<kGain>(Whole(), x, rv, weight, y, i);
    if (i < dim) ScaleAt<kGain>(Part{dim - i}, x, rv, weight, y, i);
  }
}

void ForwardF32(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  switch (instance.gain) {
    case Gain::kNone:
      return ForwardRows<Gain::kNone>(instance, call, r0, r1);
    case Gain::kWeight:
      return ForwardRows<Gain::kWeight>(instance, call, r0, r1);
    case Gain::kOnePlusWeight:
      return ForwardRows<Gain::kOnePlusWeight>(instance, call, r0, r1);
  }
}

// sum += u h and dweight += dy h.
template <Gain kGain, class Access>
HWY_INLINE Vector ReduceAt(Access access, const float* x, const float* dy, Vector r,
                           const float* weight, float* dweight, Vector sum, size_t i) {
  const Vector h = hn::Mul(access.Load(x + i), r), g = access.Load(dy + i);
  if (kGain == Gain::kNone) return hn::MulAdd(g, h, sum);
  access.Store(hn::MulAdd(g, h, access.Load(dweight + i)), dweight + i);
  return hn::MulAdd(hn::Mul(g, LoadGain<kGain>(access, weight, i)), h, sum);
}

// dx = r (u - h m), m = <u h>.
template <Gain kGain, bool kAccumulate, class Access>
HWY_INLINE void GradientAt(Access access, const float* x, const float* dy, Vector r, Vector m,
                           const float* weight, float* dx, size_t i) {
  const Vector h = hn::Mul(access.Load(x + i), r);
  Vector u = access.Load(dy + i);
  if (kGain != Gain::kNone) u = hn::Mul(u, LoadGain<kGain>(access, weight, i));
  const Vector d = hn::NegMulAdd(h, m, u);
  access.Store(kAccumulate ? hn::MulAdd(r, d, access.Load(dx + i)) : hn::Mul(r, d), dx + i);
}

template <Gain kGain, bool kAccumulate>
void BackwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                  int64_t r1) {
  const size_t lanes = hn::Lanes(Tag()), dim = instance.dim;
  const float inverse_dim = 1.0f / static_cast<float>(dim);
  const float* weight = kGain == Gain::kNone ? nullptr : static_cast<const float*>(call.params[0]);
  float* dweight = kGain == Gain::kNone ? nullptr : static_cast<float*>(call.dparams[0]);
  for (int64_t row = r0; row < r1; ++row) {
    const float* x = Row<float>(call.x, call.x_pitch, row);
    const float* dy = Row<float>(call.dy, call.dy_pitch, row);
    float* dx = Row<float>(call.dx, call.dx_pitch, row);
    const Vector r = hn::Set(Tag(), *Row<float>(call.saved, call.saved_pitch, row));
    Vector s0 = hn::Zero(Tag()), s1 = s0;
    size_t i = 0;
    for (; i + 2 * lanes <= dim; i += 2 * lanes) {
      s0 = ReduceAt<kGain>(Whole(), x, dy, r, weight, dweight, s0, i);
      s1 = ReduceAt<kGain>(Whole(), x, dy, r, weight, dweight, s1, i + lanes);
    }
    for (; i + lanes <= dim; i += lanes) {
      s0 = ReduceAt<kGain>(Whole(), x, dy, r, weight, dweight, s0, i);
    }
    if (i < dim) s1 = ReduceAt<kGain>(Part{dim - i}, x, dy, r, weight, dweight, s1, i);
    const Vector m = hn::Set(Tag(), SumLanes(hn::Add(s0, s1)) * inverse_dim);
    for (i = 0; i + lanes <= dim; i += lanes) {
      GradientAt<kGain, kAccumulate>(Whole(), x, dy, r, m, weight, dx, i);
    }
    if (i < dim) GradientAt<kGain, kAccumulate>(Part{dim - i}, x, dy, r, m, weight, dx, i);
  }
}

template <bool kAccumulate>
void BackwardOf(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  switch (instance.gain) {
    case Gain::kNone:
      return BackwardRows<Gain::kNone, kAccumulate>(instance, call, r0, r1);
    case Gain::kWeight:
      return BackwardRows<Gain::kWeight, kAccumulate>(instance, call, r0, r1);
    case Gain::kOnePlusWeight:
      return BackwardRows<Gain::kOnePlusWeight, kAccumulate>(instance, call, r0, r1);
  }
}

void BackwardF32(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  if (call.flags & PLUMB_CALL_DX_ACCUMULATE) return BackwardOf<true>(instance, call, r0, r1);
  BackwardOf<false>(instance, call, r0, r1);
}

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

PLUMB_NORM_NOTE("rms_norm");

namespace {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(BackwardF32);

double GainOf(const plumb_norm_instance& instance, const double* weight, size_t i) {
  switch (instance.gain) {
    case Gain::kNone:
      return 1;
    case Gain::kWeight:
      return weight[i];
    case Gain::kOnePlusWeight:
      return 1 + weight[i];
  }
  return 1;
}

void ForwardF64(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  const double dim = static_cast<double>(instance.dim);
  const double* weight =
      instance.gain == Gain::kNone ? nullptr : static_cast<const double*>(call.params[0]);
  for (int64_t row = r0; row < r1; ++row) {
    const double* x = Row<double>(call.x, call.x_pitch, row);
    double* y = Row<double>(call.y, call.y_pitch, row);
    double sum = 0;
    for (size_t i = 0; i < instance.dim; ++i) sum += x[i] * x[i];
    const double r = 1 / std::sqrt(sum / dim + instance.eps);
    if (call.saved != nullptr) *Row<double>(call.saved, call.saved_pitch, row) = r;
    for (size_t i = 0; i < instance.dim; ++i) y[i] = GainOf(instance, weight, i) * (x[i] * r);
  }
}

void BackwardF64(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  const double dim = static_cast<double>(instance.dim);
  const bool accumulate = (call.flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  const bool affine = instance.gain != Gain::kNone;
  const double* weight = affine ? static_cast<const double*>(call.params[0]) : nullptr;
  double* dweight = affine ? static_cast<double*>(call.dparams[0]) : nullptr;
  for (int64_t row = r0; row < r1; ++row) {
    const double* x = Row<double>(call.x, call.x_pitch, row);
    const double* dy = Row<double>(call.dy, call.dy_pitch, row);
    double* dx = Row<double>(call.dx, call.dx_pitch, row);
    const double r = *Row<double>(call.saved, call.saved_pitch, row);
    double sum = 0;
    for (size_t i = 0; i < instance.dim; ++i) {
      sum += dy[i] * GainOf(instance, weight, i) * (x[i] * r);
      if (affine) dweight[i] += dy[i] * (x[i] * r);
    }
    for (size_t i = 0; i < instance.dim; ++i) {
      const double d = r * (dy[i] * GainOf(instance, weight, i) - x[i] * r * (sum / dim));
      dx[i] = accumulate ? dx[i] + d : d;
    }
  }
}

enum Attribute { kEps, kAffine, kUnitOffset, kAttributeCount };

const plumb_attr_def kAttributes[kAttributeCount] = {
    {"eps",
     "Added to the mean square before the root.",
     PLUMB_ATTR_F64,
     0,
     0,
     1,
     {1e-5, 0, nullptr},
     nullptr},
    {"affine", "Whether there is a gain.", PLUMB_ATTR_BOOL, 0, 0, 1, {0, 1, nullptr}, nullptr},
    {"unit_offset",
     "The gain is 1 + weight, and weight starts at 0 (Gemma).",
     PLUMB_ATTR_BOOL,
     0,
     0,
     1,
     {0, 0, nullptr},
     nullptr},
};

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char* err, size_t cap) {
  const bool affine = values[kAffine].i != 0, unit_offset = values[kUnitOffset].i != 0;
  if (unit_offset && !affine) {
    std::snprintf(err, cap, "unit_offset is about the gain, and affine: false leaves none");
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* instance = new (std::nothrow) plumb_norm_instance();
  if (instance == nullptr) return PLUMB_RESOURCE_EXHAUSTED;
  // Otherwise the tables still lead to a function that looks for the instruction set at every call.
  if (!hwy::GetChosenTarget().IsInitialized()) {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  instance->dim = dim;
  instance->eps = values[kEps].f;
  instance->gain = !affine ? Gain::kNone : unit_offset ? Gain::kOnePlusWeight : Gain::kWeight;
  instance->forward_f32 = &HWY_DYNAMIC_DISPATCH(ForwardF32);
  instance->backward_f32 = &HWY_DYNAMIC_DISPATCH(BackwardF32);
  plumb_tensor_def& weight = instance->weight;
  weight.name = "weight";
  weight.doc = unit_offset ? "The gain less 1." : "The gain.";
  weight.ndim = 1;
  weight.dims[0] = dim;
  weight.init = unit_offset ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES;
  weight.lr_scale = 1;
  *out = instance;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = instance->gain == Gain::kNone ? 0 : 1;
  out->params = &instance->weight;
  out->saved_per_row = 1;
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                     int64_t r1) {
  if (call->dtype == PLUMB_F32) {
    instance->forward_f32(*instance, *call, r0, r1);
  } else if (call->dtype == PLUMB_F64) {
    ForwardF64(*instance, *call, r0, r1);
  } else {
    return PLUMB_UNIMPLEMENTED;
  }
  return PLUMB_OK;
}

plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
  if (call->dtype == PLUMB_F32) {
    instance->backward_f32(*instance, *call, r0, r1);
  } else if (call->dtype == PLUMB_F64) {
    BackwardF64(*instance, *call, r0, r1);
  } else {
    return PLUMB_UNIMPLEMENTED;
  }
  return PLUMB_OK;
}

const plumb_norm_plugin kNorm = {
    sizeof(plumb_norm_plugin),
    0,  // min_host_minor
    "rms_norm",
    "RMSNorm",
    "1.0.0",
    "plumb",
    "Apache-2.0",
    "y = g x / sqrt(mean(x^2) + eps), g = weight or 1 + weight; Zhang & Sennrich 2019, "
    "arXiv:1910.07467.",
    PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED,
    PLUMB_F32 | PLUMB_F64,
    kAttributeCount,
    sizeof(plumb_attr_def),
    kAttributes,
    nullptr,  // available: every instruction set down to none has its code
    Create,
    Destroy,
    Layout,
    Forward,
    Backward,
    nullptr,  // stats_partial
    nullptr,  // stats_combine
    nullptr,  // stats_finalize
    nullptr,  // get_extension
};

}  // namespace

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &kNorm : nullptr;
}

#endif  // HWY_ONCE
