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
// Borders. r is 0 where <x^2> + eps is 0 (a row of zeros, eps = 0), and so is dx there. Squares
// that leave the range of float (|x| beyond 1e17; tiny rows with a tiny eps) are taken in double.
//
// Speed is that of memory. A row is read from it once, then from the first-level cache, while a
// later one is asked for; what a call is too large to leave in the caches is written past them. One
// template serves float, bf16 (computed in float) and double, which is for gradient checks.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>

#include "plumb/norm_plugin.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rms_norm.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

#ifndef PLUMB_RMS_NORM_SHARED
#define PLUMB_RMS_NORM_SHARED

enum class Gain { kNone, kWeight, kOnePlusWeight };

namespace {

// Rows [r0, r1) of a call, forward or backward; `residual` is null without the extension.
using RowsFunction = void (*)(const plumb_norm_instance& instance, const plumb_norm_call& call,
                              const plumb_residual_call* residual, int64_t r0, int64_t r1);
struct Kernels {
  RowsFunction forward[3], backward[3];  // float, bf16, double
};

}  // namespace

struct plumb_norm_instance {
  size_t dim;
  double eps;
  Gain gain;
  plumb_tensor_def weight;
  Kernels kernels;  // for this machine's instruction set
};

namespace {

// The accumulate type of element type T.
template <class T>
using AccumulateOf = std::conditional_t<std::is_same<T, double>::value, double, float>;

inline float Widened(plumb_bf16 v) { return plumb_bf16_to_float(v); }
inline float Widened(float v) { return v; }
inline double Widened(double v) { return v; }

template <class A, class T>
A WideReciprocal(const T* x, size_t dim, double eps) {
  using W = std::conditional_t<std::is_same<A, double>::value, long double, double>;
  W squares = 0;
  for (size_t i = 0; i < dim; ++i) squares += static_cast<W>(Widened(x[i])) * Widened(x[i]);
  const W v = squares / static_cast<W>(dim) + static_cast<W>(eps);
  const W largest = std::numeric_limits<A>::max(), r = v == 0 ? 0 : 1 / std::sqrt(v);
  return static_cast<A>(r > largest ? largest : r);
}

// Results of this many bytes a call are stored past the caches, unless they overwrite operands.
// With a reader behind the norm both ways are as fast at two thirds of a last-level cache of 32
// MiB, which is what some cores share nowadays; what a virtual machine says of its own is no help.
constexpr int64_t kStreamBytes = int64_t{20} << 20;

// How many rows ahead a row is asked for.
constexpr int64_t kAhead = 5;

inline bool Streams(const plumb_norm_call& call, const void* in, const void* out,
                    size_t element_bytes) {
  return (call.flags & PLUMB_CALL_ALIGNED64) != 0 && in != out &&
         call.rows * static_cast<int64_t>(call.dim * element_bytes) >= kStreamBytes;
}

}  // namespace
#endif  // PLUMB_RMS_NORM_SHARED

HWY_BEFORE_NAMESPACE();
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
template <class A>
using Tag = hn::ScalableTag<A>;
template <class A>
using Vector = hn::Vec<Tag<A>>;
constexpr bool kMasks = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;

// How the elements at `p` are read and written: a whole vector, or the `n` that are left of a row,
// the other lanes being zero. Rows are never touched outside their elements.
template <class A>
struct Whole {
  using Bits = hn::Rebind<uint32_t, Tag<A>>;
  using Half = hn::Rebind<plumb_bf16, Tag<A>>;

  HWY_INLINE Vector<A> Load(const A* p) const { return hn::LoadU(Tag<A>(), p); }
  HWY_INLINE Vector<A> Load(const plumb_bf16* p) const {
    const auto bits = hn::PromoteTo(Bits(), hn::LoadU(Half(), p));
    return hn::BitCast(Tag<A>(), hn::ShiftLeft<16>(bits));
  }
  template <bool kStream, class D>
  HWY_INLINE void Put(D d, hn::Vec<D> v, hn::TFromD<D>* p) const {
    if (kStream && hn::MaxLanes(d) * sizeof(*p) >= 16) {  // hn::Stream writes no less
      hn::Stream(v, d, p);
    } else {
      hn::StoreU(v, d, p);
    }
  }
  template <bool kStream>
  HWY_INLINE void Store(Vector<A> v, A* p) const {
    Put<kStream>(Tag<A>(), v, p);
  }
  // As plumb_bf16_from_float.
  template <bool kStream>
  HWY_INLINE void Store(Vector<A> v, plumb_bf16* p) const {
    const auto bits = hn::BitCast(Bits(), v), high = hn::ShiftRight<16>(bits);
    const auto up = hn::Add(hn::And(high, hn::Set(Bits(), 1)), hn::Set(Bits(), 0x7fff));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, up));
    const auto quiet = hn::Or(high, hn::Set(Bits(), 0x40));
    const auto half = hn::IfThenElse(hn::RebindMask(Bits(), hn::IsNaN(v)), quiet, rounded);
    const hn::Rebind<int32_t, Tag<A>> as_int;
    Put<kStream>(Half(), hn::DemoteTo(Half(), hn::BitCast(as_int, half)), p);
  }
};

template <class A>
struct Part {
  size_t n;
  HWY_INLINE auto Mask() const { return hn::FirstN(Tag<A>(), n); }

  // Where a masked load or store leaves the other lanes alone it is used, else a copy.
  template <class T>
  HWY_INLINE Vector<A> Load(const T* p) const {
    if constexpr (kMasks && sizeof(T) > 2) return hn::MaskedLoad(Mask(), Tag<A>(), p);
    HWY_ALIGN T lanes[hn::MaxLanes(Tag<A>())] = {};
    for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
    return Whole<A>().Load(lanes);
  }
  template <bool kStream, class T>
  HWY_INLINE void Store(Vector<A> v, T* p) const {
    if constexpr (kMasks && sizeof(T) > 2) return hn::BlendedStore(v, Mask(), Tag<A>(), p);
    HWY_ALIGN T lanes[hn::MaxLanes(Tag<A>())];
    Whole<A>().template Store<false>(v, lanes);
    for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
};

// body(access, i) for the vectors of a row.
template <class A, class Body>
HWY_INLINE void ForVectors(size_t dim, const Body& body) {
  const size_t lanes = hn::Lanes(Tag<A>());
  size_t i = 0;
  for (; i + lanes <= dim; i += lanes) body(Whole<A>(), i);
  if (i < dim) body(Part<A>{dim - i}, i);
}

// <x^2> of a row, which is read in blocks of four vectors. Four sums side by side: the additions of
// one would wait for each other. Their order depends on `dim` alone.
template <class A, class T>
class MeanSquare {
 public:
  HWY_INLINE explicit MeanSquare(const T* x) : x_(x) { s0_ = s1_ = s2_ = s3_ = hn::Zero(Tag<A>()); }
  HWY_INLINE void AddBlock(size_t i) {
    const size_t lanes = hn::Lanes(Tag<A>());
    s0_ = Add(Whole<A>(), i, s0_);
    s1_ = Add(Whole<A>(), i + lanes, s1_);
    s2_ = Add(Whole<A>(), i + 2 * lanes, s2_);
    s3_ = Add(Whole<A>(), i + 3 * lanes, s3_);
  }
  // What is left of the row from i on, after its blocks.
  HWY_INLINE A AddRest(size_t i, size_t dim) {
    const size_t lanes = hn::Lanes(Tag<A>());
    for (; i + lanes <= dim; i += lanes) s0_ = Add(Whole<A>(), i, s0_);
    if (i < dim) s1_ = Add(Part<A>{dim - i}, i, s1_);
    const Vector<A> sum = hn::Add(hn::Add(s0_, s1_), hn::Add(s2_, s3_));
    return hn::GetLane(hn::SumOfLanes(Tag<A>(), sum)) * (1 / static_cast<A>(dim));
  }

 private:
  template <class Access>
  HWY_INLINE Vector<A> Add(Access access, size_t i, Vector<A> sum) const {
    const Vector<A> v = access.Load(x_ + i);
    return hn::MulAdd(v, v, sum);
  }

  const T* x_;
  Vector<A> s0_, s1_, s2_, s3_;
};

template <class A, class T>
HWY_INLINE A MeanSquareOf(const T* x, size_t dim) {
  MeanSquare<A, T> square(x);
  const size_t block = 4 * hn::Lanes(Tag<A>());
  size_t i = 0;
  for (; i + block <= dim; i += block) square.AddBlock(i);
  return square.AddRest(i, dim);
}

template <class A, class T>
HWY_INLINE A ReciprocalOf(const T* x, A mean_square, size_t dim, double eps) {
  const A v = mean_square + static_cast<A>(eps);
  using Limits = std::numeric_limits<A>;
  // Below, squares that were rounded to nothing would count.
  if (HWY_UNLIKELY(!(v >= Limits::min() / Limits::epsilon() && v <= Limits::max()))) {
    return WideReciprocal<A>(x, dim, eps);
  }
  return 1 / std::sqrt(v);
}

// The gain of the elements at weight + i.
template <Gain kGain, class Access, class A>
HWY_INLINE Vector<A> LoadGain(Access access, const A* weight, size_t i) {
  const Vector<A> w = access.Load(weight + i);
  return kGain == Gain::kOnePlusWeight ? hn::Add(w, hn::Set(Tag<A>(), 1)) : w;
}

// The row that is normalized: of x, or of x + res once that is stored.
template <class T>
HWY_INLINE const T* RowToNormalize(const plumb_norm_call& call, const plumb_residual_call* residual,
                                   size_t dim, int64_t row) {
  const T* x = PLUMB_CONST_ROW(T, call.x, call.x_pitch, row);
  if (residual == nullptr) return x;
  using A = AccumulateOf<T>;
  const T* res = PLUMB_CONST_ROW(T, residual->res, residual->res_pitch, row);
  T* sum = PLUMB_ROW(T, residual->sum, residual->sum_pitch, row);
  ForVectors<A>(dim, [x, res, sum](auto access, size_t i) HWY_ATTR {
    access.template Store<false>(hn::Add(access.Load(x + i), access.Load(res + i)), sum + i);
  });
  return sum;
}

// Row by row, y = g h, while the squares of the next row are summed and a later one is asked for:
// one row's arithmetic alone would wait for its sum, its root and for memory.
template <class T, Gain kGain, bool kStream>
void ForwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call,
                 const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  using A = AccumulateOf<T>;
  const size_t dim = instance.dim, lanes = hn::Lanes(Tag<A>()), block = 4 * lanes;
  const A* weight = kGain == Gain::kNone ? nullptr : static_cast<const A*>(call.params[0]);
  if (r0 == r1) return;
  const T* x = RowToNormalize<T>(call, residual, dim, r0);
  A mean_square = MeanSquareOf<A>(x, dim);
  for (int64_t row = r0; row < r1; ++row) {
    const A reciprocal = ReciprocalOf(x, mean_square, dim, instance.eps);
    if (call.saved != nullptr) *PLUMB_ROW(A, call.saved, call.saved_pitch, row) = reciprocal;
    const Vector<A> r = hn::Set(Tag<A>(), reciprocal);
    T* y = PLUMB_ROW(T, call.y, call.y_pitch, row);
    const auto normalize = [=](auto access, size_t i) HWY_ATTR {
      Vector<A> v = hn::Mul(access.Load(x + i), r);
      if constexpr (kGain != Gain::kNone) v = hn::Mul(v, LoadGain<kGain>(access, weight, i));
      access.template Store<kStream>(v, y + i);
    };
    const auto normalize_rest = [=](size_t i) HWY_ATTR {
      for (; i + lanes <= dim; i += lanes) normalize(Whole<A>(), i);
      if (i < dim) normalize(Part<A>{dim - i}, i);
    };
    if (row + 1 == r1) {
      normalize_rest(0);
      break;
    }
    const T* next = RowToNormalize<T>(call, residual, dim, row + 1);
    const T* later =
        PLUMB_CONST_ROW(T, call.x, call.x_pitch, row + kAhead < r1 ? row + kAhead : row);
    MeanSquare<A, T> square(next);
    size_t i = 0;
    for (; i + block <= dim; i += block) {
      for (size_t k = 0; k < block; k += 64 / sizeof(T)) hwy::Prefetch(later + i + k);
      square.AddBlock(i);
      for (size_t k = 0; k < block; k += lanes) normalize(Whole<A>(), i + k);
    }
    mean_square = square.AddRest(i, dim);
    normalize_rest(i);
    x = next;
  }
  if (kStream) hwy::FlushStream();
}

template <class T, Gain kGain>
void Forward(const plumb_norm_instance& instance, const plumb_norm_call& call,
             const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  const bool streams =
      Streams(call, residual == nullptr ? call.x : residual->sum, call.y, sizeof(T));
  if (streams) return ForwardRows<T, kGain, true>(instance, call, residual, r0, r1);
  ForwardRows<T, kGain, false>(instance, call, residual, r0, r1);
}

// `add`, when not null, is added to the gradient, which is rounded before.
template <class T, Gain kGain, bool kStream>
void BackwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, const void* add,
                  int64_t add_pitch, int64_t r0, int64_t r1) {
  using A = AccumulateOf<T>;
  const Tag<A> tag;
  const size_t dim = instance.dim, lanes = hn::Lanes(tag);
  const Vector<A> inverse_dim = hn::Set(tag, 1 / static_cast<A>(dim));
  const A* weight = kGain == Gain::kNone ? nullptr : static_cast<const A*>(call.params[0]);
  A* dweight = kGain == Gain::kNone ? nullptr : static_cast<A*>(call.dparams[0]);
  for (int64_t row = r0; row < r1; ++row) {
    const T* x = PLUMB_CONST_ROW(T, call.x, call.x_pitch, row);
    const T* dy = PLUMB_CONST_ROW(T, call.dy, call.dy_pitch, row);
    const Vector<A> r = hn::Set(tag, *PLUMB_CONST_ROW(A, call.saved, call.saved_pitch, row));
    // sum + u h, and dweight + dy h. Where there is no element dy is 0.
    const auto reduce = [=](auto access, size_t i, Vector<A> sum) HWY_ATTR {
      const Vector<A> h = hn::Mul(access.Load(x + i), r);
      Vector<A> u = access.Load(dy + i);
      if constexpr (kGain != Gain::kNone) {
        access.template Store<false>(hn::MulAdd(u, h, access.Load(dweight + i)), dweight + i);
        u = hn::Mul(u, LoadGain<kGain>(access, weight, i));
      }
      return hn::MulAdd(u, h, sum);
    };
    Vector<A> s0 = hn::Zero(tag), s1 = s0;
    size_t i = 0;
    for (; i + 2 * lanes <= dim; i += 2 * lanes) {
      s0 = reduce(Whole<A>(), i, s0);
      s1 = reduce(Whole<A>(), i + lanes, s1);
    }
    for (; i + lanes <= dim; i += lanes) s0 = reduce(Whole<A>(), i, s0);
    if (i < dim) s1 = reduce(Part<A>{dim - i}, i, s1);
    const Vector<A> mean_uh = hn::Mul(hn::SumOfLanes(tag, hn::Add(s0, s1)), inverse_dim);
    T* dx = PLUMB_ROW(T, call.dx, call.dx_pitch, row);
    const T* more = add == nullptr ? nullptr : PLUMB_CONST_ROW(T, add, add_pitch, row);
    ForVectors<A>(dim, [=](auto access, size_t j) HWY_ATTR {
      const Vector<A> h = hn::Mul(access.Load(x + j), r);
      Vector<A> u = access.Load(dy + j);
      if constexpr (kGain != Gain::kNone) u = hn::Mul(u, LoadGain<kGain>(access, weight, j));
      Vector<A> d = hn::Mul(r, hn::NegMulAdd(h, mean_uh, u));
      if (more != nullptr) d = hn::Add(access.Load(more + j), d);
      access.template Store<kStream>(d, dx + j);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <class T, Gain kGain>
void Backward(const plumb_norm_instance& instance, const plumb_norm_call& call,
              const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  const bool accumulate = (call.flags & PLUMB_CALL_DX_ACCUMULATE) != 0, alone = residual == nullptr;
  const void* add = accumulate ? call.dx : alone ? nullptr : residual->dsum;
  const int64_t add_pitch = accumulate ? call.dx_pitch : alone ? 0 : residual->dsum_pitch;
  if (add == nullptr && Streams(call, call.dy, call.dx, sizeof(T))) {
    return BackwardRows<T, kGain, true>(instance, call, nullptr, 0, r0, r1);
  }
  BackwardRows<T, kGain, false>(instance, call, add, add_pitch, r0, r1);
}

template <Gain kGain>
Kernels KernelsWith() {
  return {{&Forward<float, kGain>, &Forward<plumb_bf16, kGain>, &Forward<double, kGain>},
          {&Backward<float, kGain>, &Backward<plumb_bf16, kGain>, &Backward<double, kGain>}};
}

Kernels KernelsOf(Gain gain) {
  return gain == Gain::kNone     ? KernelsWith<Gain::kNone>()
         : gain == Gain::kWeight ? KernelsWith<Gain::kWeight>()
                                 : KernelsWith<Gain::kOnePlusWeight>();
}

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

PLUMB_NORM_NOTE("rms_norm");

namespace {

HWY_EXPORT(KernelsOf);

enum Attribute { kEps, kAffine, kUnitOffset, kAttributeCount };

constexpr plumb_attr_def Bool(const char* name, const char* doc, int64_t value) {
  return {name, doc, PLUMB_ATTR_BOOL, 0, 0, 1, {0, value, nullptr}, nullptr};
}
const char kEpsDoc[] = "Added to the mean square before the root.";
const plumb_attr_def kAttributes[kAttributeCount] = {
    {"eps", kEpsDoc, PLUMB_ATTR_F64, 0, 0, 1, {1e-5, 0, nullptr}, nullptr},
    Bool("affine", "Whether there is a gain.", 1),
    Bool("unit_offset", "The gain is 1 + weight, and weight starts at 0 (Gemma).", 0),
};

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char* err, size_t cap) {
  const bool affine = values[kAffine].i != 0, unit_offset = values[kUnitOffset].i != 0;
  if (!(values[kEps].f >= 0 && values[kEps].f <= 1)) {  // for hosts that do not check, also NaN
    std::snprintf(err, cap, "eps is %g, must be in 0..1", values[kEps].f);
    return PLUMB_INVALID_ARGUMENT;
  }
  if (unit_offset && !affine) {
    std::snprintf(err, cap, "unit_offset is about the gain, and affine: false leaves none");
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* instance = new (std::nothrow) plumb_norm_instance();
  if (instance == nullptr) return PLUMB_RESOURCE_EXHAUSTED;
  instance->dim = dim;
  instance->eps = values[kEps].f;
  instance->gain = !affine ? Gain::kNone : unit_offset ? Gain::kOnePlusWeight : Gain::kWeight;
  instance->kernels = HWY_DYNAMIC_DISPATCH(KernelsOf)(instance->gain);
  plumb_tensor_def& weight = instance->weight;
  weight.name = "weight";
  weight.doc = unit_offset ? "The gain less 1." : "The gain.";
  weight.ndim = 1;
  weight.dims[0] = dim;
  weight.init = unit_offset ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES;
  weight.lr_scale = 1;
  weight.offset = unit_offset ? 1 : 0;
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

bool Offered(uint32_t dtype) { return dtype == 1 || dtype == 2 || dtype == 4; }

plumb_status ForwardSum(const plumb_norm_instance* instance, const plumb_norm_call* call,
                        const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  if (!Offered(call->dtype)) return PLUMB_UNIMPLEMENTED;
  instance->kernels.forward[call->dtype / 2](*instance, *call, residual, r0, r1);
  return PLUMB_OK;
}

plumb_status BackwardSum(const plumb_norm_instance* instance, const plumb_norm_call* call,
                         const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  if (!Offered(call->dtype)) return PLUMB_UNIMPLEMENTED;
  instance->kernels.backward[call->dtype / 2](*instance, *call, residual, r0, r1);
  return PLUMB_OK;
}

plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                     int64_t r1) {
  return ForwardSum(instance, call, nullptr, r0, r1);
}

plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
  return BackwardSum(instance, call, nullptr, r0, r1);
}

const plumb_norm_residual kResidual = {sizeof(plumb_norm_residual), 0, ForwardSum, BackwardSum};

const void* GetExtension(const char* id) {
  return std::strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &kResidual : nullptr;
}

const plumb_norm_plugin kNorm = {
    sizeof(plumb_norm_plugin),
    0,  // min_host_minor
    "rms_norm",
    "RMSNorm",
    "1.1.0",
    "plumb",
    "Apache-2.0",
    "y = g x / sqrt(mean(x^2) + eps), g = weight or 1 + weight; Zhang & Sennrich 2019, "
    "arXiv:1910.07467.",
    PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
        PLUMB_NORM_SCALE_INVARIANT,
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
    GetExtension,
};

}  // namespace

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &kNorm : nullptr;
}

#endif  // HWY_ONCE
