// layer_norm: y = gamma (x - mu) / sigma + beta, Ba, Kiros & Hinton 2016, "Layer Normalization",
// arXiv:1607.06450, eq. 4, with the biased variance and eps inside the root. `affine: false` leaves
// gamma and beta out (OLMo 1), `bias: false` beta alone.
//
// With <a> the mean of a over the row, mu = <x>, r = (<(x - mu)^2> + eps)^(-1/2), h = (x - mu) r:
//     y = gamma h + beta
// Let u = dy gamma, the gradient of h. As dmu/dx_j = 1/dim and dr/dx_j = -r^3 (x_j - mu) / dim,
//     dx_j = r (u_j - <u>) + sum_i(u_i (x_i - mu)) dr/dx_j = r (u_j - <u> - h_j <u h>)
//     dgamma = sum over rows of dy h,   dbeta = sum over rows of dy
// forward() keeps mu and r for each row; backward() reads x again and makes h from it. The variance
// is taken around the mean that was found, in a second pass: a row with a large mean loses no
// digits.
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
#define HWY_TARGET_INCLUDE "layer_norm.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

#ifndef PLUMB_LAYER_NORM_SHARED
#define PLUMB_LAYER_NORM_SHARED

enum class Affine { kNone, kWeight, kWeightAndBias };  // as a number: the count of parameters

struct plumb_norm_instance {
  using RowsFunction = void (*)(const plumb_norm_instance&, const plumb_norm_call&, int64_t,
                                int64_t);
  size_t dim;
  double eps;
  Affine affine;
  plumb_tensor_def params[2];              // weight, bias
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
#endif  // PLUMB_LAYER_NORM_SHARED

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
  HWY_INLINE Vector Keep(Vector v) const { return v; }
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
  // Zeroes the lanes that hold no element.
  HWY_INLINE Vector Keep(Vector v) const { return hn::IfThenElseZero(hn::FirstN(Tag(), n), v); }
};

HWY_INLINE float SumLanes(Vector v) { return hn::GetLane(hn::SumOfLanes(Tag(), v)); }

// Four sums side by side: the additions of one would wait for each other. The order of the
// additions depends on `dim` alone.
HWY_INLINE float Sum(const float* x, size_t dim) {
  const size_t lanes = hn::Lanes(Tag());
  Vector s0 = hn::Zero(Tag()), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    s0 = hn::Add(s0, Whole().Load(x + i));
    s1 = hn::Add(s1, Whole().Load(x + i + lanes));
    s2 = hn::Add(s2, Whole().Load(x + i + 2 * lanes));
    s3 = hn::Add(s3, Whole().Load(x + i + 3 * lanes));
  }
  for (; i + lanes <= dim; i += lanes) s0 = hn::Add(s0, Whole().Load(x + i));
  if (i < dim) s1 = hn::Add(s1, Part{dim - i}.Load(x + i));
  return SumLanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// sum + (x - mean)^2.
template <class Access>
HWY_INLINE Vector AddSquare(Access access, const float* x, Vector mean, Vector sum) {
  const Vector d = access.Keep(hn::Sub(access.Load(x), mean));
  return hn::MulAdd(d, d, sum);
}

HWY_INLINE float SumOfSquares(const float* x, Vector mean, size_t dim) {
  const size_t lanes = hn::Lanes(Tag());
  Vector s0 = hn::Zero(Tag()), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    s0 = AddSquare(Whole(), x + i, mean, s0);
    s1 = AddSquare(Whole(), x + i + lanes, mean, s1);
    s2 = AddSquare(Whole(), x + i + 2 * lanes, mean, s2);
    s3 = AddSquare(Whole(), x + i + 3 * lanes, mean, s3);
  }
  for (; i + lanes <= dim; i += lanes) s0 = AddSquare(Whole(), x + i, mean, s0);
  if (i < dim) s1 = AddSquare(Part{dim - i}, x + i, mean, s1);
  return SumLanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// The row's statistics, as every element needs them.
struct Statistics {
  Vector mean, rstd;
};

template <class Access>
HWY_INLINE Vector Normalized(Access access, const float* x, const Statistics& s, size_t i) {
  return hn::Mul(hn::Sub(access.Load(x + i), s.mean), s.rstd);
}

template <Affine kAffine, class Access>
HWY_INLINE void NormalizeAt(Access access, const float* x, const Statistics& s, const float* weight,
                            const float* bias, float* y, size_t i) {
  Vector v = Normalized(access, x, s, i);
  if (kAffine == Affine::kWeight) v = hn::Mul(v, access.Load(weight + i));
  if (kAffine == Affine::kWeightAndBias)
    v = hn::MulAdd(v, access.Load(weight + i), access.Load(bias + i));
  access.Store(v, y + i);
}

// Parameter number k, null where there is none.
template <Affine kAffine>
const float* ParamOf(const plumb_norm_call& call, int k) {
  return k < static_cast<int>(kAffine) ? static_cast<const float*>(call.params[k]) : nullptr;
}
template <Affine kAffine>
float* GradientOf(const plumb_norm_call& call, int k) {
  return k < static_cast<int>(kAffine) ? static_cast<float*>(call.dparams[k]) : nullptr;
}

template <Affine kAffine>
void ForwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  const size_t lanes = hn::Lanes(Tag()), dim = instance.dim;
  const float inverse_dim = 1.0f / static_cast<float>(dim), eps = static_cast<float>(instance.eps);
  const float* weight = ParamOf<kAffine>(call, 0);
  const float* bias = ParamOf<kAffine>(call, 1);
  for (int64_t row = r0; row < r1; ++row) {
    const float* x = Row<float>(call.x, call.x_pitch, row);
    float* y = Row<float>(call.y, call.y_pitch, row);
    const float mean = Sum(x, dim) * inverse_dim;
    const float variance = SumOfSquares(x, hn::Set(Tag(), mean), dim) * inverse_dim;
    const float rstd = 1.0f / std::sqrt(variance + eps);
    if (call.saved != nullptr) {
      float* saved = Row<float>(call.saved, call.saved_pitch, row);
      saved[0] = mean;
      saved[1] = rstd;
    }
    const Statistics s{hn::Set(Tag(), mean), hn::Set(Tag(), rstd)};
    size_t i = 0;
    for (; i + lanes <= dim; i += lanes) NormalizeAt<kAffine>(Whole(), x, s, weight, bias, y, i);
    if (i < dim) NormalizeAt<kAffine>(Part{dim - i}, x, s, weight, bias, y, i);
  }
}

void ForwardF32(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  switch (instance.affine) {
    case Affine::kNone:
      return ForwardRows<Affine::kNone>(instance, call, r0, r1);
    case Affine::kWeight:
      return ForwardRows<Affine::kWeight>(instance, call, r0, r1);
    case Affine::kWeightAndBias:
      return ForwardRows<Affine::kWeightAndBias>(instance, call, r0, r1);
  }
}

// Running sums of u and u h.
struct Sums {
  Vector u, uh;
};

// Adds to the sums, to dweight (dy h) and to dbias (dy).
template <Affine kAffine, class Access>
HWY_INLINE void ReduceAt(Access access, const float* x, const float* dy, const Statistics& s,
                         const float* weight, float* dweight, float* dbias, Sums* sums, size_t i) {
  // In lanes without an element dy is 0, and so is all that is added there.
  const Vector h = Normalized(access, x, s, i), g = access.Load(dy + i);
  Vector u = g;
  if (kAffine != Affine::kNone) {
    u = hn::Mul(g, access.Load(weight + i));
    access.Store(hn::MulAdd(g, h, access.Load(dweight + i)), dweight + i);
  }
  if (kAffine == Affine::kWeightAndBias)
    access.Store(hn::Add(g, access.Load(dbias + i)), dbias + i);
  sums->u = hn::Add(sums->u, u);
  sums->uh = hn::MulAdd(u, access.Keep(h), sums->uh);
}

// The row means <u> and <u h>.
struct Means {
  Vector u, uh;
};

// dx = r (u - <u> - h <u h>).
template <Affine kAffine, bool kAccumulate, class Access>
HWY_INLINE void GradientAt(Access access, const float* x, const float* dy, const Statistics& s,
                           const Means& m, const float* weight, float* dx, size_t i) {
  const Vector h = Normalized(access, x, s, i);
  Vector u = access.Load(dy + i);
  if (kAffine != Affine::kNone) u = hn::Mul(u, access.Load(weight + i));
  const Vector d = hn::NegMulAdd(h, m.uh, hn::Sub(u, m.u));
  access.Store(kAccumulate ? hn::MulAdd(s.rstd, d, access.Load(dx + i)) : hn::Mul(s.rstd, d),
               dx + i);
}

template <Affine kAffine, bool kAccumulate>
void BackwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                  int64_t r1) {
  const size_t lanes = hn::Lanes(Tag()), dim = instance.dim;
  const float inverse_dim = 1.0f / static_cast<float>(dim);
  const float* weight = ParamOf<kAffine>(call, 0);
  float* dweight = GradientOf<kAffine>(call, 0);
  float* dbias = GradientOf<kAffine>(call, 1);
  for (int64_t row = r0; row < r1; ++row) {
    const float* x = Row<float>(call.x, call.x_pitch, row);
    const float* dy = Row<float>(call.dy, call.dy_pitch, row);
    float* dx = Row<float>(call.dx, call.dx_pitch, row);
    const float* saved = Row<float>(call.saved, call.saved_pitch, row);
    const Statistics s{hn::Set(Tag(), saved[0]), hn::Set(Tag(), saved[1])};
    Sums a{hn::Zero(Tag()), hn::Zero(Tag())}, b = a;
    size_t i = 0;
    for (; i + 2 * lanes <= dim; i += 2 * lanes) {
      ReduceAt<kAffine>(Whole(), x, dy, s, weight, dweight, dbias, &a, i);
      ReduceAt<kAffine>(Whole(), x, dy, s, weight, dweight, dbias, &b, i + lanes);
    }
    for (; i + lanes <= dim; i += lanes) {
      ReduceAt<kAffine>(Whole(), x, dy, s, weight, dweight, dbias, &a, i);
    }
    if (i < dim) ReduceAt<kAffine>(Part{dim - i}, x, dy, s, weight, dweight, dbias, &b, i);
    const Means m{hn::Set(Tag(), SumLanes(hn::Add(a.u, b.u)) * inverse_dim),
                  hn::Set(Tag(), SumLanes(hn::Add(a.uh, b.uh)) * inverse_dim)};
    for (i = 0; i + lanes <= dim; i += lanes) {
      GradientAt<kAffine, kAccumulate>(Whole(), x, dy, s, m, weight, dx, i);
    }
    if (i < dim) GradientAt<kAffine, kAccumulate>(Part{dim - i}, x, dy, s, m, weight, dx, i);
  }
}

template <bool kAccumulate>
void BackwardOf(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  switch (instance.affine) {
    case Affine::kNone:
      return BackwardRows<Affine::kNone, kAccumulate>(instance, call, r0, r1);
    case Affine::kWeight:
      return BackwardRows<Affine::kWeight, kAccumulate>(instance, call, r0, r1);
    case Affine::kWeightAndBias:
      return BackwardRows<Affine::kWeightAndBias, kAccumulate>(instance, call, r0, r1);
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

PLUMB_NORM_NOTE("layer_norm");

namespace {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(BackwardF32);

void ForwardF64(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  const double dim = static_cast<double>(instance.dim);
  const bool has_weight = instance.affine != Affine::kNone;
  const bool has_bias = instance.affine == Affine::kWeightAndBias;
  const double* weight = has_weight ? static_cast<const double*>(call.params[0]) : nullptr;
  const double* bias = has_bias ? static_cast<const double*>(call.params[1]) : nullptr;
  for (int64_t row = r0; row < r1; ++row) {
    const double* x = Row<double>(call.x, call.x_pitch, row);
    double* y = Row<double>(call.y, call.y_pitch, row);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < instance.dim; ++i) sum += x[i];
    const double mean = sum / dim;
    for (size_t i = 0; i < instance.dim; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double rstd = 1 / std::sqrt(squares / dim + instance.eps);
    if (call.saved != nullptr) {
      double* saved = Row<double>(call.saved, call.saved_pitch, row);
      saved[0] = mean;
      saved[1] = rstd;
    }
    for (size_t i = 0; i < instance.dim; ++i) {
      const double h = (x[i] - mean) * rstd;
      y[i] = (has_weight ? weight[i] * h : h) + (has_bias ? bias[i] : 0);
    }
  }
}

void BackwardF64(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  const double dim = static_cast<double>(instance.dim);
  const bool accumulate = (call.flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  const bool has_weight = instance.affine != Affine::kNone;
  const bool has_bias = instance.affine == Affine::kWeightAndBias;
  const double* weight = has_weight ? static_cast<const double*>(call.params[0]) : nullptr;
  double* dweight = has_weight ? static_cast<double*>(call.dparams[0]) : nullptr;
  double* dbias = has_bias ? static_cast<double*>(call.dparams[1]) : nullptr;
  for (int64_t row = r0; row < r1; ++row) {
    const double* x = Row<double>(call.x, call.x_pitch, row);
    const double* dy = Row<double>(call.dy, call.dy_pitch, row);
    double* dx = Row<double>(call.dx, call.dx_pitch, row);
    const double* saved = Row<double>(call.saved, call.saved_pitch, row);
    const double mean = saved[0], rstd = saved[1];
    double sum_u = 0, sum_uh = 0;
    for (size_t i = 0; i < instance.dim; ++i) {
      const double h = (x[i] - mean) * rstd, u = has_weight ? dy[i] * weight[i] : dy[i];
      sum_u += u;
      sum_uh += u * h;
      if (has_weight) dweight[i] += dy[i] * h;
      if (has_bias) dbias[i] += dy[i];
    }
    for (size_t i = 0; i < instance.dim; ++i) {
      const double h = (x[i] - mean) * rstd, u = has_weight ? dy[i] * weight[i] : dy[i];
      const double d = rstd * (u - sum_u / dim - h * (sum_uh / dim));
      dx[i] = accumulate ? dx[i] + d : d;
    }
  }
}

enum Attribute { kEps, kAffine, kBias, kAttributeCount };

const plumb_attr_def kAttributes[kAttributeCount] = {
    {"eps",
     "Added to the variance before the root.",
     PLUMB_ATTR_F64,
     0,
     0,
     1,
     {1e-5, 0, nullptr},
     nullptr},
    {"affine",
     "Whether there are a gain and a bias.",
     PLUMB_ATTR_BOOL,
     0,
     0,
     1,
     {0, 1, nullptr},
     nullptr},
    {"bias",
     "Whether there is a bias beside the gain.",
     PLUMB_ATTR_BOOL,
     0,
     0,
     1,
     {0, 1, nullptr},
     nullptr},
};

plumb_tensor_def VectorParam(const char* name, const char* doc, uint32_t dim, uint32_t init) {
  plumb_tensor_def def{};
  def.name = name;
  def.doc = doc;
  def.ndim = 1;
  def.dims[0] = dim;
  def.init = init;
  def.lr_scale = 1;
  return def;
}

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char*, size_t) {
  plumb_norm_instance* instance = new (std::nothrow) plumb_norm_instance();
  if (instance == nullptr) return PLUMB_RESOURCE_EXHAUSTED;
  // Otherwise the tables still lead to a function that looks for the instruction set at every call.
  if (!hwy::GetChosenTarget().IsInitialized()) {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  const bool affine = values[kAffine].i != 0, bias = values[kBias].i != 0;
  instance->dim = dim;
  instance->eps = values[kEps].f;
  instance->affine = !affine ? Affine::kNone : bias ? Affine::kWeightAndBias : Affine::kWeight;
  instance->params[0] = VectorParam("weight", "The gain gamma.", dim, PLUMB_INIT_ONES);
  instance->params[1] = VectorParam("bias", "The bias beta.", dim, PLUMB_INIT_ZEROS);
  instance->forward_f32 = &HWY_DYNAMIC_DISPATCH(ForwardF32);
  instance->backward_f32 = &HWY_DYNAMIC_DISPATCH(BackwardF32);
  *out = instance;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = static_cast<uint32_t>(instance->affine);
  out->params = instance->params;
  out->saved_per_row = 2;
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
    "layer_norm",
    "LayerNorm",
    "1.0.0",
    "plumb",
    "Apache-2.0",
    "y = gamma (x - mean) / sqrt(var + eps) + beta; Ba, Kiros & Hinton 2016, arXiv:1607.06450.",
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
