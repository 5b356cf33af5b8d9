// The rows of rms_norm, forward and backward, for every instruction set; rms_norm.cc has the
// equations.
//
// Borders. r is 0 where <x^2> + eps is 0 (a row of zeros, eps = 0), and so is dx there. Squares
// that leave the range of float (|x| beyond 1e17; tiny rows with a tiny eps) are taken in double.
//
// Memory-bound. A row is read from memory once, then from the L1 cache, while a later one is
// prefetched; results too large for the caches are written with non-temporal stores. One template
// serves float, bf16 (computed in float) and double, which is for gradient checks.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | (HWY_AVX3 - 1))
#endif

#include "rms_norm_rows.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rms_norm_rows.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

#ifndef PLUMB_RMS_NORM_SHARED
#define PLUMB_RMS_NORM_SHARED
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

// Results of at least this many bytes a call are stored non-temporally, unless they overwrite
// operands. With a reader after the norm, break-even is at two thirds of a last-level cache, for
// which 32 MiB is assumed: virtual machines report theirs unreliably.
constexpr int64_t kStreamBytes = int64_t{20} << 20;

// The prefetch distance in rows.
constexpr int64_t kPrefetchRows = 5;

// Not in gradient checks: twice the code for nothing.
template <class T>
constexpr bool kMayStream = !std::is_same<T, double>::value;

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
  // The rest of the row from i on, after its blocks.
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

// Row by row, y = g h, software-pipelined with the sum of squares of the next row and the prefetch
// of a later one, to hide the latency of the sum, the root and memory.
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
    const T* later = PLUMB_CONST_ROW(T, call.x, call.x_pitch,
                                     row + kPrefetchRows < r1 ? row + kPrefetchRows : row);
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
  if (streams) return ForwardRows<T, kGain, kMayStream<T>>(instance, call, residual, r0, r1);
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
    return BackwardRows<T, kGain, kMayStream<T>>(instance, call, nullptr, 0, r0, r1);
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

namespace {
HWY_EXPORT(KernelsOf);
}  // namespace

Kernels KernelsFor(Gain gain) { return HWY_DYNAMIC_DISPATCH(KernelsOf)(gain); }

#endif  // HWY_ONCE
