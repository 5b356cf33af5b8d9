// The rows of layer_norm, forward and backward, for every instruction set; layer_norm.cc has the
// equations.
//
// Statistics from one reading of the row. With d = x - x_0, mu = x_0 + <d>, and the variance is
// <d^2> - <d>^2: shifted data, Chan, Golub & LeVeque 1983, "Algorithms for computing the sample
// variance". The difference loses digits only where x_0 lies some sigma off the mean, and such a
// row is read again with the mean as the shift. A constant row so has variance 0 and y = beta,
// exactly.
//
// Borders. r is 0 where variance + eps is 0 (a constant row, eps = 0), and so is dx there. Squares
// that leave the range of float (|x| beyond 1e17; tiny rows with a tiny eps) are taken in double.
//
// Memory-bound. A row is read from memory once, then from the L1 cache, while a later one is
// prefetched; results too large for the caches are written with non-temporal stores. One template
// serves float, bf16 (computed in float) and double, for gradient checks.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | (HWY_AVX3 - 1))
#endif

#include "layer_norm_rows.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layer_norm_rows.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

#ifndef PLUMB_LAYER_NORM_SHARED
#define PLUMB_LAYER_NORM_SHARED
namespace {

// The accumulate type of element type T.
template <class T>
using AccumulateOf = std::conditional_t<std::is_same<T, double>::value, double, float>;

inline float Widened(plumb_bf16 v) { return plumb_bf16_to_float(v); }
inline float Widened(float v) { return v; }
inline double Widened(double v) { return v; }

template <class A>
struct Statistics {
  A mean, r;
};

template <class T, class A>
Statistics<A> WideStatistics(const T* x, size_t dim, double eps) {
  using W = std::conditional_t<std::is_same<A, double>::value, long double, double>;
  const W n = static_cast<W>(dim), shift = Widened(x[0]);
  W mean = 0, squares = 0;
  for (size_t i = 0; i < dim; ++i) mean += Widened(x[i]) - shift;
  mean = shift + mean / n;
  for (size_t i = 0; i < dim; ++i) squares += (Widened(x[i]) - mean) * (Widened(x[i]) - mean);
  const W v = squares / n + static_cast<W>(eps), largest = std::numeric_limits<A>::max();
  const W r = v == 0 ? 0 : 1 / std::sqrt(v);
  return {static_cast<A>(mean), static_cast<A>(r > largest ? largest : r)};
}

// Results of at least this many bytes a call are stored non-temporally, unless they overwrite
// operands. With a reader after the norm, break-even is at two thirds of a last-level cache, for
// which 32 MiB is assumed: virtual machines report theirs unreliably.
constexpr int64_t kStreamBytes = int64_t{20} << 20;

// The prefetch distance in rows.
constexpr int64_t kPrefetchRows = 3;

// Not in gradient checks: twice the code for nothing.
template <class T>
constexpr bool kMayStream = !std::is_same<T, double>::value;

inline bool Streams(const plumb_norm_call& call, const void* in, const void* out,
                    size_t element_bytes) {
  return (call.flags & PLUMB_CALL_ALIGNED64) != 0 && in != out &&
         call.rows * static_cast<int64_t>(call.dim * element_bytes) >= kStreamBytes;
}

}  // namespace
#endif  // PLUMB_LAYER_NORM_SHARED

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
  using Bf16 = hn::Rebind<plumb_bf16, Tag<A>>;

  HWY_INLINE Vector<A> Load(const A* p) const { return hn::LoadU(Tag<A>(), p); }
  HWY_INLINE Vector<A> Load(const plumb_bf16* p) const {
    const auto bits = hn::PromoteTo(Bits(), hn::LoadU(Bf16(), p));
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
    const auto bf16 = hn::IfThenElse(hn::RebindMask(Bits(), hn::IsNaN(v)), quiet, rounded);
    const hn::Rebind<int32_t, Tag<A>> as_int;
    Put<kStream>(Bf16(), hn::DemoteTo(Bf16(), hn::BitCast(as_int, bf16)), p);
  }
  HWY_INLINE Vector<A> Keep(Vector<A> v) const { return v; }
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
  // Zeroes the lanes that hold no element.
  HWY_INLINE Vector<A> Keep(Vector<A> v) const { return hn::IfThenElseZero(Mask(), v); }
};

// body(access, i) for the vectors of a row.
template <class A, class Body>
HWY_INLINE void ForVectors(size_t dim, const Body& body) {
  const size_t lanes = hn::Lanes(Tag<A>());
  size_t i = 0;
  for (; i + lanes <= dim; i += lanes) body(Whole<A>(), i);
  if (i < dim) body(Part<A>{dim - i}, i);
}

template <class V>
struct Pair {
  V a, b;
};

// <x - shift> and <(x - shift)^2> of a row, which is read in blocks of four vectors. Four pairs of
// sums side by side: the additions of one would wait for each other. Their order depends on `dim`
// alone.
template <class A, class T>
class Moments {
 public:
  HWY_INLINE Moments(const T* x, A shift) : x_(x), shift_(hn::Set(Tag<A>(), shift)) {
    for (Pair<Vector<A>>* s : {&s0_, &s1_, &s2_, &s3_}) s->a = s->b = hn::Zero(Tag<A>());
  }
  HWY_INLINE void AddBlock(size_t i) {
    const size_t lanes = hn::Lanes(Tag<A>());
    Add(Whole<A>(), i, &s0_);
    Add(Whole<A>(), i + lanes, &s1_);
    Add(Whole<A>(), i + 2 * lanes, &s2_);
    Add(Whole<A>(), i + 3 * lanes, &s3_);
  }
  // The rest of the row from i on, after its blocks.
  HWY_INLINE Pair<A> AddRest(size_t i, size_t dim) {
    const size_t lanes = hn::Lanes(Tag<A>());
    for (; i + lanes <= dim; i += lanes) Add(Whole<A>(), i, &s0_);
    if (i < dim) Add(Part<A>{dim - i}, i, &s1_);
    const A inverse_dim = 1 / static_cast<A>(dim);
    const Vector<A> a = hn::Add(hn::Add(s0_.a, s1_.a), hn::Add(s2_.a, s3_.a));
    const Vector<A> b = hn::Add(hn::Add(s0_.b, s1_.b), hn::Add(s2_.b, s3_.b));
    return {hn::GetLane(hn::SumOfLanes(Tag<A>(), a)) * inverse_dim,
            hn::GetLane(hn::SumOfLanes(Tag<A>(), b)) * inverse_dim};
  }

 private:
  template <class Access>
  HWY_INLINE void Add(Access access, size_t i, Pair<Vector<A>>* sums) {
    const Vector<A> d = access.Keep(hn::Sub(access.Load(x_ + i), shift_));
    sums->a = hn::Add(sums->a, d);
    sums->b = hn::MulAdd(d, d, sums->b);
  }

  const T* x_;
  Vector<A> shift_;
  Pair<Vector<A>> s0_, s1_, s2_, s3_;
};

template <class A, class T>
HWY_INLINE Pair<A> MomentsOf(const T* x, A shift, size_t dim) {
  Moments<A, T> moments(x, shift);
  const size_t block = 4 * hn::Lanes(Tag<A>());
  size_t i = 0;
  for (; i + block <= dim; i += block) moments.AddBlock(i);
  return moments.AddRest(i, dim);
}

// From the moments about x_0.
template <class A, class T>
HWY_INLINE Statistics<A> StatisticsOf(const T* x, Pair<A> m, size_t dim, double eps) {
  A shift = Widened(x[0]);
  A variance = m.b - m.a * m.a;
  if (HWY_UNLIKELY(!(m.a * m.a <= 8 * variance))) {  // or a NaN
    shift += m.a;
    m = MomentsOf(x, shift, dim);
    variance = m.b - m.a * m.a;
  }
  const A v = (variance < 0 ? 0 : variance) + static_cast<A>(eps);
  using Limits = std::numeric_limits<A>;
  // Below, squares that were rounded to nothing would count.
  if (HWY_UNLIKELY(!(v >= Limits::min() / Limits::epsilon() && v <= Limits::max()))) {
    return WideStatistics<T, A>(x, dim, eps);
  }
  return {shift + m.a, 1 / std::sqrt(v)};
}

// Parameter number k, null where there is none.
template <Affine kAffine, class P>
auto ParamOf(const P* params, int k) {
  return k < static_cast<int>(kAffine) ? params[k] : nullptr;
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

// Row by row, y = gamma h + beta, software-pipelined with the moments of the next row and the
// prefetch of a later one, to hide the latency of the sums, the root and memory.
template <class T, Affine kAffine, bool kStream>
void ForwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call,
                 const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  using A = AccumulateOf<T>;
  const size_t dim = instance.dim, lanes = hn::Lanes(Tag<A>()), block = 4 * lanes;
  const A* weight = static_cast<const A*>(ParamOf<kAffine>(call.params, 0));
  const A* bias = static_cast<const A*>(ParamOf<kAffine>(call.params, 1));
  if (r0 == r1) return;
  const T* x = RowToNormalize<T>(call, residual, dim, r0);
  Pair<A> moments = MomentsOf<A>(x, static_cast<A>(Widened(x[0])), dim);
  for (int64_t row = r0; row < r1; ++row) {
    const Statistics<A> s = StatisticsOf(x, moments, dim, instance.eps);
    if (call.saved != nullptr) {
      A* saved = PLUMB_ROW(A, call.saved, call.saved_pitch, row);
      saved[0] = s.mean;
      saved[1] = s.r;
    }
    const Vector<A> mean = hn::Set(Tag<A>(), s.mean), r = hn::Set(Tag<A>(), s.r);
    T* y = PLUMB_ROW(T, call.y, call.y_pitch, row);
    const auto normalize = [=](auto access, size_t i) HWY_ATTR {
      Vector<A> v = hn::Mul(hn::Sub(access.Load(x + i), mean), r);
      if constexpr (kAffine == Affine::kWeight) v = hn::Mul(v, access.Load(weight + i));
      if constexpr (kAffine == Affine::kWeightAndBias)
        v = hn::MulAdd(v, access.Load(weight + i), access.Load(bias + i));
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
    const T* later = PLUMB_CONST_ROW(T, call.x, call.x_pitch,
                                     row + kPrefetchRows < r1 ? row + kPrefetchRows : row);
    Moments<A, T> sums(next, static_cast<A>(Widened(next[0])));
    size_t i = 0;
    for (; i + block <= dim; i += block) {
      for (size_t k = 0; k < block; k += 64 / sizeof(T)) hwy::Prefetch(later + i + k);
      sums.AddBlock(i);
      for (size_t k = 0; k < block; k += lanes) normalize(Whole<A>(), i + k);
    }
    moments = sums.AddRest(i, dim);
    normalize_rest(i);
    x = next;
  }
  if (kStream) hwy::FlushStream();
}

template <class T, Affine kAffine>
void Forward(const plumb_norm_instance& instance, const plumb_norm_call& call,
             const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  const void* in = residual == nullptr ? call.x : residual->sum;
  if (Streams(call, in, call.y, sizeof(T)))
    return ForwardRows<T, kAffine, kMayStream<T>>(instance, call, residual, r0, r1);
  ForwardRows<T, kAffine, false>(instance, call, residual, r0, r1);
}

// `add`, when not null, is added to the gradient, which is rounded before.
template <class T, Affine kAffine, bool kStream>
void BackwardRows(const plumb_norm_instance& instance, const plumb_norm_call& call, const void* add,
                  int64_t add_pitch, int64_t r0, int64_t r1) {
  using A = AccumulateOf<T>;
  const Tag<A> tag;
  const size_t dim = instance.dim, lanes = hn::Lanes(tag);
  const Vector<A> inverse_dim = hn::Set(tag, 1 / static_cast<A>(dim));
  const A* weight = static_cast<const A*>(ParamOf<kAffine>(call.params, 0));
  A* dweight = static_cast<A*>(ParamOf<kAffine>(call.dparams, 0));
  A* dbias = static_cast<A*>(ParamOf<kAffine>(call.dparams, 1));
  for (int64_t row = r0; row < r1; ++row) {
    const T* x = PLUMB_CONST_ROW(T, call.x, call.x_pitch, row);
    const T* dy = PLUMB_CONST_ROW(T, call.dy, call.dy_pitch, row);
    const A* saved = PLUMB_CONST_ROW(A, call.saved, call.saved_pitch, row);
    const Vector<A> mean = hn::Set(tag, saved[0]), r = hn::Set(tag, saved[1]);
    // The sums of u and of u h, and the parameters' gradients. Where there is no element dy is 0.
    const auto reduce = [=](auto access, size_t i, Pair<Vector<A>>* sums) HWY_ATTR {
      const Vector<A> g = access.Load(dy + i);
      const Vector<A> h = hn::Mul(access.Keep(hn::Sub(access.Load(x + i), mean)), r);
      Vector<A> u = g;
      if constexpr (kAffine != Affine::kNone) {
        u = hn::Mul(g, access.Load(weight + i));
        access.template Store<false>(hn::MulAdd(g, h, access.Load(dweight + i)), dweight + i);
      }
      if constexpr (kAffine == Affine::kWeightAndBias)
        access.template Store<false>(hn::Add(g, access.Load(dbias + i)), dbias + i);
      sums->a = hn::Add(sums->a, u);
      sums->b = hn::MulAdd(u, h, sums->b);
    };
    Pair<Vector<A>> s0{hn::Zero(tag), hn::Zero(tag)}, s1 = s0;
    size_t i = 0;
    for (; i + 2 * lanes <= dim; i += 2 * lanes) {
      reduce(Whole<A>(), i, &s0);
      reduce(Whole<A>(), i + lanes, &s1);
    }
    for (; i + lanes <= dim; i += lanes) reduce(Whole<A>(), i, &s0);
    if (i < dim) reduce(Part<A>{dim - i}, i, &s1);
    const Vector<A> mean_u = hn::Mul(hn::SumOfLanes(tag, hn::Add(s0.a, s1.a)), inverse_dim);
    const Vector<A> mean_uh = hn::Mul(hn::SumOfLanes(tag, hn::Add(s0.b, s1.b)), inverse_dim);
    T* dx = PLUMB_ROW(T, call.dx, call.dx_pitch, row);
    const T* more = add == nullptr ? nullptr : PLUMB_CONST_ROW(T, add, add_pitch, row);
    ForVectors<A>(dim, [=](auto access, size_t j) HWY_ATTR {
      const Vector<A> h = hn::Mul(hn::Sub(access.Load(x + j), mean), r);
      Vector<A> u = access.Load(dy + j);
      if constexpr (kAffine != Affine::kNone) u = hn::Mul(u, access.Load(weight + j));
      Vector<A> d = hn::Mul(r, hn::NegMulAdd(h, mean_uh, hn::Sub(u, mean_u)));
      if (more != nullptr) d = hn::Add(access.Load(more + j), d);
      access.template Store<kStream>(d, dx + j);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <class T, Affine kAffine>
void Backward(const plumb_norm_instance& instance, const plumb_norm_call& call,
              const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  const bool accumulate = (call.flags & PLUMB_CALL_DX_ACCUMULATE) != 0, alone = residual == nullptr;
  const void* add = accumulate ? call.dx : alone ? nullptr : residual->dsum;
  const int64_t add_pitch = accumulate ? call.dx_pitch : alone ? 0 : residual->dsum_pitch;
  if (add == nullptr && Streams(call, call.dy, call.dx, sizeof(T))) {
    return BackwardRows<T, kAffine, kMayStream<T>>(instance, call, nullptr, 0, r0, r1);
  }
  BackwardRows<T, kAffine, false>(instance, call, add, add_pitch, r0, r1);
}

template <Affine kAffine>
Kernels KernelsWith() {
  return {{&Forward<float, kAffine>, &Forward<plumb_bf16, kAffine>, &Forward<double, kAffine>},
          {&Backward<float, kAffine>, &Backward<plumb_bf16, kAffine>, &Backward<double, kAffine>}};
}

Kernels KernelsOf(Affine affine) {
  return affine == Affine::kNone     ? KernelsWith<Affine::kNone>()
         : affine == Affine::kWeight ? KernelsWith<Affine::kWeight>()
                                     : KernelsWith<Affine::kWeightAndBias>();
}

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace {
HWY_EXPORT(KernelsOf);
}  // namespace

Kernels KernelsFor(Affine affine) { return HWY_DYNAMIC_DISPATCH(KernelsOf)(affine); }

#endif  // HWY_ONCE
