// derf: y = weight erf(alpha x + shift) + bias, the Dynamic erf of Chen, Lu, Zhu, Sun & Liu 2025,
// "Stronger Normalization-Free Transformers", arXiv:2512.10938. As dyt (which see), with the
// Gaussian's distribution function, scaled to go from -1 to 1, and one more learned number that
// moves it. `bias: false` leaves the bias out, `affine: false` the weight too.
//
// With z = alpha x + shift, u = dy weight and v = u (2 / sqrt(pi)) exp(-z^2), as
// erf'(z) = (2 / sqrt(pi)) exp(-z^2):
//     dx = alpha v
//     dalpha = sum over elements and rows of v x,   dshift = the same sum of v
//     dweight = sum over rows of dy erf(z),   dbias = sum over rows of dy
// backward() reads x again and makes z from it: nothing is saved.
//
// float and bf16 run in vectors of floats, through Highway; double, which serves gradient checks,
// in plain loops with the C library's erf and exp.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | (HWY_AVX3 - 1))
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

#include "plumb/norm_plugin.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "derf.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

#ifndef PLUMB_DERF_SHARED
#define PLUMB_DERF_SHARED

enum Param { kAlpha, kShift, kWeight, kBias, kParamCount };
enum Type { kFloat, kBf16, kDouble, kTypeCount };

struct plumb_norm_instance {
  using Rows = void (*)(const plumb_norm_instance&, const plumb_norm_call&, int64_t, int64_t);
  size_t dim;
  uint32_t n_params;  // of the first so many of Param
  plumb_tensor_def params[kParamCount];
  Rows forward[kTypeCount], backward[kTypeCount];  // float and bf16: for this machine
};

namespace {

// The parameters of a call, and their gradients; null where there is none.
template <class T>
const T* ParamOf(const plumb_norm_instance& instance, const plumb_norm_call& call, Param p) {
  return p < instance.n_params ? static_cast<const T*>(call.params[p]) : nullptr;
}
template <class T>
T* GradientOf(const plumb_norm_instance& instance, const plumb_norm_call& call, Param p) {
  return p < instance.n_params ? static_cast<T*>(call.dparams[p]) : nullptr;
}

}  // namespace
#endif  // PLUMB_DERF_SHARED

HWY_BEFORE_NAMESPACE();
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using IntTag = hn::RebindToUnsigned<Tag>;
using Bf16Tag = hn::Rebind<uint16_t, Tag>;
using Vector = hn::Vec<Tag>;

HWY_INLINE Vector FromBf16(hn::Vec<Bf16Tag> bf16) {
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(IntTag(), bf16)));
}

// As plumb_bf16_from_float().
HWY_INLINE hn::Vec<Bf16Tag> ToBf16(Vector v) {
  const auto bits = hn::BitCast(IntTag(), v), upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(IntTag(), 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(IntTag(), 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(IntTag(), 0x40));
  const auto is_nan = hn::RebindMask(IntTag(), hn::IsNaN(v));
  return hn::DemoteTo(
      Bf16Tag(), hn::BitCast(hn::RebindToSigned<Tag>(), hn::IfThenElse(is_nan, quiet, rounded)));
}

// How the elements at `p` are read and written: a whole vector, or the `n` that are left of a row,
// the other lanes being zero. Rows are never touched outside their elements.
struct Whole {
  HWY_INLINE Vector Load(const float* p) const { return hn::LoadU(Tag(), p); }
  HWY_INLINE Vector Load(const plumb_bf16* p) const { return FromBf16(hn::LoadU(Bf16Tag(), p)); }
  HWY_INLINE void Store(Vector v, float* p) const { hn::StoreU(v, Tag(), p); }
  HWY_INLINE void Store(Vector v, plumb_bf16* p) const { hn::StoreU(ToBf16(v), Bf16Tag(), p); }
};
struct Part {
  size_t n;
  template <class T>
  HWY_INLINE Vector Load(const T* p) const {
    HWY_ALIGN T lanes[hn::MaxLanes(Tag())] = {};
    for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
    return Whole().Load(lanes);
  }
  template <class T>
  HWY_INLINE void Store(Vector v, T* p) const {
    HWY_ALIGN T lanes[hn::MaxLanes(Tag())];
    Whole().Store(v, lanes);
    for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
};

// erf to 6 units in the last place, and never beyond 1: a P(a^2) / Q(a^2) for a = |z|, up to where
// erf is 1 in float. P and Q were fitted for the least relative error (1.9e-8) on 0 < a <= 3.92;
// all their coefficients are positive, so that no digit is lost in them. Comparisons are written so
// that a NaN passes through, here and below.
HWY_INLINE Vector Erf(Vector z) {
  const Tag d;
  const Vector end = hn::Set(d, 3.92f);
  Vector a = hn::Abs(z);
  a = hn::IfThenElse(hn::Gt(a, end), end, a);
  const Vector s = hn::Mul(a, a);
  Vector p = hn::Set(d, 2.0500797290878836e-06f), q = hn::Set(d, 3.809170448221266e-05f);
  p = hn::MulAdd(p, s, hn::Set(d, 0.00028488400857895613f));
  q = hn::MulAdd(q, s, hn::Set(d, 0.0011625482002273202f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.0037656687200069427f));
  q = hn::MulAdd(q, s, hn::Set(d, 0.014969320967793465f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.05274888500571251f));
  q = hn::MulAdd(q, s, hn::Set(d, 0.11410960555076599f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.1904076486825943f));
  q = hn::MulAdd(q, s, hn::Set(d, 0.5020771026611328f));
  p = hn::Mul(hn::MulAdd(p, s, hn::Set(d, 1.1283791065216064f)), a);
  q = hn::MulAdd(q, s, hn::Set(d, 1.0f));
  p = hn::IfThenElse(hn::Gt(p, q), q, p);
  return hn::CopySign(hn::Div(p, q), z);
}

// exp(-s) for s >= 0: 2^-n exp(n ln 2 - s), n the integer nearest to s / ln 2. The exponential of
// what is left, at most ln 2 / 2 in size, is its Taylor sum (the next term is below 1e-8). ln 2 is
// subtracted in two parts, of which the first has few enough digits for n times it to be exact.
// Beyond 80, before subnormal numbers begin, the result is 0.
HWY_INLINE Vector ExpOfMinus(Vector s) {
  const Tag d;
  const Vector end = hn::Set(d, 80.0f), round = hn::Set(d, 12582912.0f);  // 3 * 2^22
  const Vector shifted = hn::Add(hn::Mul(s, hn::Set(d, 1.44269504f)), round);
  const Vector n = hn::Sub(shifted, round);  // whose integer is in the low bits of `shifted`
  Vector r = hn::Sub(hn::Mul(n, hn::Set(d, 0.693359375f)), s);
  r = hn::Add(r, hn::Mul(n, hn::Set(d, -2.12194440e-4f)));
  Vector e = hn::Set(d, 1.0f / 5040);
  e = hn::MulAdd(e, r, hn::Set(d, 1.0f / 720));
  e = hn::MulAdd(e, r, hn::Set(d, 1.0f / 120));
  e = hn::MulAdd(e, r, hn::Set(d, 1.0f / 24));
  e = hn::MulAdd(e, r, hn::Set(d, 1.0f / 6));
  e = hn::MulAdd(e, r, hn::Set(d, 0.5f));
  e = hn::MulAdd(e, r, hn::Set(d, 1.0f));
  e = hn::MulAdd(e, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(IntTag(), shifted));
  const auto one = hn::BitCast(IntTag(), hn::Set(d, 1.0f));
  e = hn::Mul(e, hn::BitCast(d, hn::Sub(one, exponent)));
  return hn::IfThenZeroElse(hn::Gt(s, end), e);
}

struct Operands {
  Vector alpha, shift;
  const float *weight, *bias;
  float *dweight, *dbias;
};

template <class T, class Access>
HWY_INLINE void ForwardAt(Access access, const Operands& o, const T* x, T* y, size_t i) {
  Vector v = Erf(hn::MulAdd(o.alpha, access.Load(x + i), o.shift));
  if (o.weight != nullptr) v = hn::Mul(v, access.Load(o.weight + i));
  if (o.bias != nullptr) v = hn::Add(v, access.Load(o.bias + i));
  access.Store(v, y + i);
}

template <class T>
void ForwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  const size_t lanes = hn::Lanes(Tag()), dim = instance.dim;
  Operands o{};
  o.alpha = hn::Set(Tag(), *ParamOf<float>(instance, call, kAlpha));
  o.shift = hn::Set(Tag(), *ParamOf<float>(instance, call, kShift));
  o.weight = ParamOf<float>(instance, call, kWeight);
  o.bias = ParamOf<float>(instance, call, kBias);
  for (int64_t row = r0; row < r1; ++row) {
    const T* x = PLUMB_CONST_ROW(T, call.x, call.x_pitch, row);
    T* y = PLUMB_ROW(T, call.y, call.y_pitch, row);
    size_t i = 0;
    for (; i + lanes <= dim; i += lanes) ForwardAt(Whole(), o, x, y, i);
    if (i < dim) ForwardAt(Part{dim - i}, o, x, y, i);
  }
}

// The sums over a row of v x and of v.
struct Sums {
  Vector alpha, shift;
};

// Writes dx, adds to dweight, dbias and the sums.
template <bool kAccumulate, class T, class Access>
HWY_INLINE void BackwardAt(Access access, const Operands& o, const T* x, const T* dy, T* dx,
                           Sums* sums, size_t i) {
  const Vector xv = access.Load(x + i), g = access.Load(dy + i);
  const Vector z = hn::MulAdd(o.alpha, xv, o.shift);
  const Vector derivative = hn::Mul(hn::Set(Tag(), 1.128379167f), ExpOfMinus(hn::Mul(z, z)));
  Vector v = hn::Mul(g, derivative);
  if (o.weight != nullptr) {
    v = hn::Mul(v, access.Load(o.weight + i));
    access.Store(hn::MulAdd(g, Erf(z), access.Load(o.dweight + i)), o.dweight + i);
  }
  if (o.dbias != nullptr) access.Store(hn::Add(g, access.Load(o.dbias + i)), o.dbias + i);
  Vector gradient = hn::Mul(o.alpha, v);
  if (kAccumulate) gradient = hn::Add(access.Load(dx + i), gradient);
  access.Store(gradient, dx + i);
  sums->alpha = hn::MulAdd(v, xv, sums->alpha);
  sums->shift = hn::Add(v, sums->shift);
}

template <bool kAccumulate, class T>
void BackwardOf(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  const size_t lanes = hn::Lanes(Tag()), dim = instance.dim;
  Operands o{};
  o.alpha = hn::Set(Tag(), *ParamOf<float>(instance, call, kAlpha));
  o.shift = hn::Set(Tag(), *ParamOf<float>(instance, call, kShift));
  o.weight = ParamOf<float>(instance, call, kWeight);
  o.dweight = GradientOf<float>(instance, call, kWeight);
  o.dbias = GradientOf<float>(instance, call, kBias);
  float* dalpha = GradientOf<float>(instance, call, kAlpha);
  float* dshift = GradientOf<float>(instance, call, kShift);
  for (int64_t row = r0; row < r1; ++row) {
    const T* x = PLUMB_CONST_ROW(T, call.x, call.x_pitch, row);
    const T* dy = PLUMB_CONST_ROW(T, call.dy, call.dy_pitch, row);
    T* dx = PLUMB_ROW(T, call.dx, call.dx_pitch, row);
    Sums sums{hn::Zero(Tag()), hn::Zero(Tag())};
    size_t i = 0;
    for (; i + lanes <= dim; i += lanes) {
      BackwardAt<kAccumulate>(Whole(), o, x, dy, dx, &sums, i);
    }
    if (i < dim) BackwardAt<kAccumulate>(Part{dim - i}, o, x, dy, dx, &sums, i);
    *dalpha += hn::GetLane(hn::SumOfLanes(Tag(), sums.alpha));
    *dshift += hn::GetLane(hn::SumOfLanes(Tag(), sums.shift));
  }
}

template <class T>
void BackwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                  int64_t r1) {
  if (call.flags & PLUMB_CALL_DX_ACCUMULATE) {
    BackwardOf<true, T>(instance, call, r0, r1);
  } else {
    BackwardOf<false, T>(instance, call, r0, r1);
  }
}

void Choose(plumb_norm_instance* instance) {
  instance->forward[kFloat] = ForwardRows<float>;
  instance->forward[kBf16] = ForwardRows<plumb_bf16>;
  instance->backward[kFloat] = BackwardRows<float>;
  instance->backward[kBf16] = BackwardRows<plumb_bf16>;
}

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

PLUMB_NORM_NOTE("derf");

namespace {

HWY_EXPORT(Choose);

void ForwardF64(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                int64_t r1) {
  const double alpha = *ParamOf<double>(instance, call, kAlpha);
  const double shift = *ParamOf<double>(instance, call, kShift);
  const double* weight = ParamOf<double>(instance, call, kWeight);
  const double* bias = ParamOf<double>(instance, call, kBias);
  for (int64_t row = r0; row < r1; ++row) {
    const double* x = PLUMB_CONST_ROW(double, call.x, call.x_pitch, row);
    double* y = PLUMB_ROW(double, call.y, call.y_pitch, row);
    for (size_t i = 0; i < instance.dim; ++i) {
      const double t = std::erf(alpha * x[i] + shift);
      y[i] = (weight != nullptr ? weight[i] * t : t) + (bias != nullptr ? bias[i] : 0);
    }
  }
}

void BackwardF64(const plumb_norm_instance& instance, const plumb_norm_call& call, int64_t r0,
                 int64_t r1) {
  constexpr double kTwoOverRootPi = 1.12837916709551257390;  // 2 / sqrt(pi)
  const bool accumulate = (call.flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  const double alpha = *ParamOf<double>(instance, call, kAlpha);
  const double shift = *ParamOf<double>(instance, call, kShift);
  const double* weight = ParamOf<double>(instance, call, kWeight);
  double* dalpha = GradientOf<double>(instance, call, kAlpha);
  double* dshift = GradientOf<double>(instance, call, kShift);
  double* dweight = GradientOf<double>(instance, call, kWeight);
  double* dbias = GradientOf<double>(instance, call, kBias);
  for (int64_t row = r0; row < r1; ++row) {
    const double* x = PLUMB_CONST_ROW(double, call.x, call.x_pitch, row);
    const double* dy = PLUMB_CONST_ROW(double, call.dy, call.dy_pitch, row);
    double* dx = PLUMB_ROW(double, call.dx, call.dx_pitch, row);
    double sum_alpha = 0, sum_shift = 0;
    for (size_t i = 0; i < instance.dim; ++i) {
      const double z = alpha * x[i] + shift, g = dy[i];
      const double v =
          (weight != nullptr ? weight[i] * g : g) * (kTwoOverRootPi * std::exp(-z * z));
      if (dweight != nullptr) dweight[i] += g * std::erf(z);
      if (dbias != nullptr) dbias[i] += g;
      sum_alpha += v * x[i];
      sum_shift += v;
      dx[i] = accumulate ? dx[i] + alpha * v : alpha * v;
    }
    *dalpha += sum_alpha;
    *dshift += sum_shift;
  }
}

enum Attribute { kAlphaInit, kShiftInit, kAffine, kHasBias, kAttributeCount };

constexpr plumb_attr_def Number(const char* name, const char* doc, double min, double max,
                                double otherwise) {
  return {name, doc, PLUMB_ATTR_F64, 0, min, max, {otherwise, 0, nullptr}, nullptr};
}
constexpr plumb_attr_def Bool(const char* name, const char* doc, bool otherwise) {
  return {name, doc, PLUMB_ATTR_BOOL, 0, 0, 1, {0, otherwise, nullptr}, nullptr};
}

const plumb_attr_def kAttributes[kAttributeCount] = {
    Number("alpha_init", "What alpha starts from.", 0, 1000, 0.5),
    Number("shift_init", "What shift starts from.", -1000, 1000, 0),
    Bool("affine", "Whether there are a weight and a bias.", true),
    Bool("bias", "Whether there is a bias beside the weight.", true),
};

plumb_tensor_def Tensor(const char* name, const char* doc, uint32_t init) {
  plumb_tensor_def tensor{};
  tensor.name = name;
  tensor.doc = doc;
  tensor.init = init;
  tensor.lr_scale = 1;
  return tensor;
}

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char* err, size_t cap) {
  for (int a = 0; a < kAttributeCount; ++a) {
    const plumb_attr_def& def = kAttributes[a];
    const double value =
        def.type == PLUMB_ATTR_F64 ? values[a].f : static_cast<double>(values[a].i);
    if (!(value >= def.min && value <= def.max)) {  // NaN is neither
      std::snprintf(err, cap, "%s must be from %g to %g", def.name, def.min, def.max);
      return PLUMB_INVALID_ARGUMENT;
    }
  }
  plumb_norm_instance* instance = new (std::nothrow) plumb_norm_instance();
  if (instance == nullptr) return PLUMB_RESOURCE_EXHAUSTED;
  // Otherwise the table still leads to a function that looks for the instruction set.
  if (!hwy::GetChosenTarget().IsInitialized()) {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  HWY_DYNAMIC_DISPATCH(Choose)(instance);
  instance->forward[kDouble] = ForwardF64;
  instance->backward[kDouble] = BackwardF64;
  instance->dim = dim;
  instance->n_params = values[kAffine].i == 0    ? kWeight
                       : values[kHasBias].i == 0 ? kBias
                                                 : kParamCount;
  plumb_tensor_def* params = instance->params;
  params[kAlpha] = Tensor("alpha", "The factor inside erf.", PLUMB_INIT_CONST);
  params[kAlpha].init_a = values[kAlphaInit].f;
  params[kShift] = Tensor("shift", "The summand inside erf.", PLUMB_INIT_CONST);
  params[kShift].init_a = values[kShiftInit].f;
  params[kWeight] = Tensor("weight", "The gain.", PLUMB_INIT_ONES);
  params[kBias] = Tensor("bias", "The bias.", PLUMB_INIT_ZEROS);
  for (const Param p : {kWeight, kBias}) params[p].ndim = 1, params[p].dims[0] = dim;
  *out = instance;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = instance->n_params;
  out->params = instance->params;
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

// The one of `functions` for the call's element type.
plumb_status Run(const plumb_norm_instance::Rows* functions, const plumb_norm_instance& instance,
                 const plumb_norm_call& call, int64_t r0, int64_t r1) {
  Type type;
  switch (call.dtype) {
    case PLUMB_F32:
      type = kFloat;
      break;
    case PLUMB_BF16:
      type = kBf16;
      break;
    case PLUMB_F64:
      type = kDouble;
      break;
    default:
      return PLUMB_UNIMPLEMENTED;
  }
  if (r0 < r1) functions[type](instance, call, r0, r1);
  return PLUMB_OK;
}

plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                     int64_t r1) {
  return Run(instance->forward, *instance, *call, r0, r1);
}

plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
  return Run(instance->backward, *instance, *call, r0, r1);
}

const plumb_norm_plugin kNorm = {
    sizeof(plumb_norm_plugin),
    0,  // min_host_minor
    "derf",
    "Dynamic erf",
    "1.0.0",
    "plumb",
    "Apache-2.0",
    "y = weight erf(alpha x + shift) + bias, alpha and shift learned numbers; Chen, Lu, Zhu, Sun & "
    "Liu 2025, arXiv:2512.10938.",
    PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED,
    PLUMB_F32 | PLUMB_BF16 | PLUMB_F64,
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
