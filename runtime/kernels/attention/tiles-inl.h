// SPDX-License-Identifier: Apache-2.0
// Parts shared by forward and backward attention: the formats of packed operands, packing, and a
// register-blocked matrix product. Included once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_
#undef PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/simd/activation_math-inl.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Df = hn::ScalableTag<float>;
using Vf = hn::Vec<Df>;

// A tile is kRowTile rows of at most two vectors: accumulators, operands and broadcasts must fit
// the registers (32 in AVX3, else 16), and hide the latency of a multiply-add.
#if HWY_TARGET == HWY_AVX3
inline constexpr int64_t kRowTile = 8;
#else
inline constexpr int64_t kRowTile = 4;
#endif
static_assert(kMaxRowTile % kRowTile == 0, "blocks are whole tiles");

HWY_INLINE int64_t LaneCount() { return static_cast<int64_t>(hn::Lanes(Df())); }
HWY_INLINE int64_t VectorCount(int64_t elements) { return CeilDiv(elements, LaneCount()); }

// -- Operand formats
//
// A packed element is a lane of 32 bits that holds kTerms consecutive terms of a product's sums,
// for both operands. `Tensor` is the type of tensor elements; `Output` is the same as StoreFloats
// takes it. Along(y) packs the lanes of y[0], y[1] in order, as terms of one row. Across(y) packs
// lane i of y[0] and of y[1] as the terms of element i.

// f32 operands; bf16 tensors are widened when they are packed.
template <class T>
struct F32Operands {
  using Tensor = T;
  using Output = T;
  using Term = float;
  using Packed = float;
  static constexpr int64_t kTerms = 1;

  static HWY_INLINE Vf MultiplyAdd(Vf a, Vf b, Vf sum) { return hn::MulAdd(a, b, sum); }
  static HWY_INLINE Vf Along(const Vf (&y)[1]) { return y[0]; }
  static HWY_INLINE Vf Across(const Vf (&y)[1]) { return y[0]; }
  static HWY_INLINE float One(const T* from, int64_t /*terms*/) {
    const hn::CappedTag<float, 1> one;
    return hn::GetLane(LoadFloats(one, from));
  }
};

#if HWY_TARGET == HWY_AVX3
// Pairs of bf16, whose products AVX512_BF16 adds to f32 at twice the rate of f32; used if
// UsesBf16Pairs() (cpu_features.h). Probabilities and their gradients are rounded to bf16, as in
// FlashAttention. The code uses assembly, since this target's functions lack the intrinsics.
struct Bf16x2Operands {
  using Tensor = uint16_t;
  using Output = FastBf16;
  using Term = uint16_t;
  using Packed = uint32_t;
  using V = hn::Vec<hn::ScalableTag<uint32_t>>;
  static constexpr int64_t kTerms = 2;

  static HWY_INLINE Vf MultiplyAdd(V a, V b, Vf sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
  static HWY_INLINE V Along(const Vf (&y)[2]) {
    V rounded;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(rounded.raw) : "v"(y[0].raw), "v"(y[1].raw));
    return rounded;
  }
  static HWY_INLINE V Across(const Vf (&y)[2]) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return V{_mm512_permutexvar_epi16(order, Along(y).raw)};
  }
  static HWY_INLINE uint32_t One(const uint16_t* from, int64_t terms) {
    return from[0] | (terms > 1 ? static_cast<uint32_t>(from[1]) << 16 : 0u);
  }
};
#endif

// -- Packing

template <class E>
using TermTag = hn::Rebind<typename E::Term, Df>;
template <class E>
using TermTail = std::conditional_t<std::is_same<typename E::Term, float>::value, FloatTail<Df>,
                                    Tail<TermTag<E>>>;

// Loads consecutive terms of a row into D's lanes.
template <class E, class D>
HWY_INLINE hn::Vec<D> LoadTerms(D d, const typename E::Tensor* from) {
  if constexpr (std::is_same<typename E::Term, float>::value) {
    return LoadFloats(d, from);
  } else {
    return hn::BitCast(d, hn::LoadU(hn::Repartition<typename E::Term, D>(), from));
  }
}

// Returns the memory of floats for packed elements that replace them.
template <class E>
HWY_INLINE typename E::Packed* AsPacked(float* floats) {
  return reinterpret_cast<typename E::Packed*>(floats);
}

HWY_INLINE void ZeroRows(float* rows, int64_t count, int64_t width) {
  const Df d;
  for (int64_t e = 0; e < count * width; e += LaneCount()) hn::Store(hn::Zero(d), d, rows + e);
}

// Packs a left operand, with terms along the rows: to[j][0, n) = from[j][0, n) for j < rows, padded
// with zeros to whole vectors and whole tiles. Rows of `to` are `width` terms.
template <class E>
HWY_INLINE void PackLeft(const typename E::Tensor* from, int64_t stride, int64_t rows, int64_t n,
                         typename E::Packed* to, int64_t width) {
  const TermTag<E> d;
  const int64_t last = (VectorCount(n) - 1) * LaneCount();
  const TermTail<E> tail(d, n - last);
  typename E::Term* packed = reinterpret_cast<typename E::Term*>(to);
  for (int64_t j = 0; j < rows; ++j, from += stride, packed += width) {
    for (int64_t e = 0; e < last; e += LaneCount()) {
      hn::Store(LoadTerms<E>(d, from + e), d, packed + e);
    }
    hn::Store(tail.Load(d, from + last), d, packed + last);
  }
  const int64_t end = (RoundUp(rows, kRowTile) - rows) * width;
  for (int64_t e = 0; e < end; e += LaneCount()) hn::Store(hn::Zero(d), d, packed + e);
}

// Packs a right operand, with terms down the columns: element e of to[j / kTerms] is column e of
// from[j] to from[j + kTerms - 1], or 0 beyond the last row. Rows of `to` are `width` elements.
template <class E>
HWY_INLINE void PackRight(const typename E::Tensor* from, int64_t stride, int64_t rows, int64_t n,
                          typename E::Packed* to, int64_t width) {
  if constexpr (E::kTerms == 1) {
    PackLeft<E>(from, stride, rows, n, to, width);
  } else {
    const TermTag<E> d;
    const hn::Rebind<typename E::Packed, Df> packed;
    const int64_t last = (VectorCount(n) - 1) * LaneCount();
    const TermTail<E> tail(d, n - last);
    const auto load = [&](const typename E::Tensor* row, int64_t e) HWY_ATTR {
      return hn::PromoteTo(packed, e < last ? hn::LoadU(d, row + e) : tail.Load(d, row + e));
    };
    for (int64_t j = 0; j < rows; j += 2, from += 2 * stride, to += width) {
      for (int64_t e = 0; e <= last; e += LaneCount()) {
        const auto low = load(from, e);
        const auto high = j + 1 < rows ? load(from + stride, e) : hn::Zero(packed);
        hn::Store(hn::Or(low, hn::ShiftLeft<16>(high)), packed, to + e);
      }
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Loads groups of four packed elements: group g from rows[4 * g] + e.
template <class E, class D>
HWY_INLINE hn::Vec<D> LoadGroups(D d, const typename E::Tensor* const* rows, int64_t e) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return LoadTerms<E>(d, rows[0] + e);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, LoadGroups<E>(half, rows + kHalf, e), LoadGroups<E>(half, rows, e));
  }
}
#endif

// Packs a right operand that is stored transposed: element j of to[e / kTerms] is from[j][e] to
// from[j][e + kTerms - 1], for j < rows <= kKeyBlock, e < n. Rows of `to` are kKeyBlock elements.
// The rest of the vector after `rows` is undefined.
template <class E>
HWY_INLINE void PackTransposed(const typename E::Tensor* from, int64_t stride, int64_t rows,
                               int64_t n, typename E::Packed* to) {
  int64_t done = 0;  // number of terms packed so far
#if HWY_TARGET != HWY_SCALAR
  const hn::Rebind<typename E::Packed, Df> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Df()));
  constexpr int64_t kStep = 4 * E::kTerms;
  const hn::Repartition<double, Df> d64;
  done = n / kStep * kStep;
  for (int64_t j = 0; j < rows; j += kLanes) {
    const typename E::Tensor* row[kLanes];  // repeats the last row if there are fewer
    for (int64_t i = 0; i < kLanes; ++i) row[i] = from + std::min(j + i, rows - 1) * stride;
    for (int64_t e = 0; e < done; e += kStep) {
      // Vector i holds four elements, starting at e, of rows i, 4 + i, 8 + i, ...
      const auto r0 = LoadGroups<E>(d, row, e), r1 = LoadGroups<E>(d, row + 1, e);
      const auto r2 = LoadGroups<E>(d, row + 2, e), r3 = LoadGroups<E>(d, row + 3, e);
      const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      const auto t1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      const auto t3 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      typename E::Packed* out = to + e / E::kTerms * kKeyBlock + j;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, t0, t1)), d, out);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, t0, t1)), d, out + kKeyBlock);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, t2, t3)), d, out + 2 * kKeyBlock);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, t2, t3)), d, out + 3 * kKeyBlock);
    }
  }
#endif
  for (int64_t e = done; e < n; e += E::kTerms) {
    for (int64_t j = 0; j < rows; ++j) {
      to[e / E::kTerms * kKeyBlock + j] = E::One(from + j * stride + e, n - e);
    }
  }
}

// Stores to[0, n) = factor * from[0, n) for `rows` rows, or adds it to `to`.
template <class T>
HWY_INLINE void Unpack(const float* from, int64_t rows, int64_t width, float factor, int64_t n,
                       bool add, T* to, int64_t stride) {
  const Df d;
  const int64_t last = (VectorCount(n) - 1) * LaneCount();
  const FloatTail<Df> tail(d, n - last);
  const Vf scale = hn::Set(d, factor);
  for (int64_t j = 0; j < rows; ++j, from += width, to += stride) {
    for (int64_t e = 0; e < last; e += LaneCount()) {
      const Vf x = hn::Mul(hn::Load(d, from + e), scale);
      StoreFloats(add ? hn::Add(LoadFloats(d, to + e), x) : x, d, to + e);
    }
    const Vf x = hn::Mul(hn::Load(d, from + last), scale);
    tail.Store(add ? hn::Add(tail.Load(d, to + last), x) : x, d, to + last);
  }
}

// -- Variants of the softmax

// Returns ALiBi's bias of keys `at`, at + 1, ... (one per lane) for the query at position `own`.
HWY_INLINE Vf DistanceBias(float slope, int64_t own, int64_t at) {
  const Df d;
  const Vf distance = hn::Abs(hn::Iota(d, static_cast<float>(at - own)));
  return hn::Mul(hn::Set(d, -slope), distance);
}
// Adds the biases of a vector of keys, minus that of the query's own key, to their scores.
HWY_INLINE Vf AddKeyBias(Vf scores, const float* biases, float own) {
  const Df d;
  const Vf bias = hn::Sub(hn::Load(d, biases), hn::Set(d, own));
  return hn::MulAdd(bias, hn::Set(d, kLog2E), scores);
}
// Returns the number of keys in a window, or one that is large enough to have no effect.
HWY_INLINE int64_t GetWindow(const SoftmaxVariant& variant, bool is_causal, int64_t keys) {
  if (variant.window == 0) return keys + kMaxRowTile;
  return is_causal ? variant.window : 2 * variant.window - 1;
}
// Returns the first KV block of a query that has `before` keys before its own.
HWY_INLINE int64_t FirstKeyBlock(int64_t before, int64_t window) {
  return std::max<int64_t>(0, before - window + 1) / kKeyBlock * kKeyBlock;
}
// Returns the mask of lanes, which stand for keys `at`, at + 1, ..., with keys in [begin, end).
HWY_INLINE hn::Mask<Df> KeysWithin(int64_t begin, int64_t end, int64_t at) {
  const Df d;
  const auto before = [&](int64_t key) HWY_ATTR {
    const int64_t lanes = std::max<int64_t>(0, std::min(LaneCount(), key - at));
    return hn::FirstN(d, static_cast<size_t>(lanes));
  };
  return hn::AndNot(before(begin), before(end));
}

// -- Products

// A tile of kRowTile rows by kVectors vectors of accumulators, which are unrolled to registers.
template <int64_t kVectors>
struct Tile {
  static constexpr int64_t kVectorCount = kVectors;
  Vf acc[kRowTile][kVectors];
  HWY_INLINE Tile() {}  // gcc does not compile an implicit constructor for NEON

  // Calls body(row, vector, accumulator) for each accumulator.
  template <class Body>
  HWY_INLINE void ForEach(const Body& body) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) body(r, v, acc[r][v]);
    }
  }
};

// Left operand of a product: element (r, k) is data[r * row_stride + k * k_stride].
template <class Packed>
struct LeftOperand {
  const Packed* data;
  int64_t row_stride;
  int64_t k_stride;
};

// Computes kRowTile rows of begin + a b, where b is [depth, vectors] of packed elements: begin(r,
// v) returns the initial value of vector v of row r; end(tile, v0) consumes the vectors from v0 on.
template <class E, int64_t kVectors, class Begin, class End>
HWY_INLINE void MultiplyTile(const LeftOperand<typename E::Packed>& a,
                             const typename E::Packed* HWY_RESTRICT b, int64_t b_stride,
                             int64_t depth, int64_t v0, const Begin& begin, const End& end) {
  const hn::Rebind<typename E::Packed, Df> d;
  const int64_t lanes = LaneCount();
  Tile<kVectors> tile;
  tile.ForEach([&](int64_t r, int64_t v, Vf& acc) HWY_ATTR { acc = begin(r, v0 + v); });
  const typename E::Packed* HWY_RESTRICT left = a.data;
  const typename E::Packed* HWY_RESTRICT right = b + v0 * lanes;
  for (int64_t k = 0; k < depth; ++k, left += a.k_stride, right += b_stride) {
    hn::Vec<decltype(d)> operand[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) operand[v] = hn::Load(d, right + v * lanes);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRowTile; ++r) {
      const auto factor = hn::Set(d, left[r * a.row_stride]);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) {
        tile.acc[r][v] = E::MultiplyAdd(factor, operand[v], tile.acc[r][v]);
      }
    }
  }
  end(tile, v0);
}

template <class E, class Begin, class End>
HWY_INLINE void MultiplyRows(const LeftOperand<typename E::Packed>& a, const typename E::Packed* b,
                             int64_t b_stride, int64_t depth, int64_t vectors, const Begin& begin,
                             const End& end) {
  int64_t v = 0;
  for (; v + 2 <= vectors; v += 2) MultiplyTile<E, 2>(a, b, b_stride, depth, v, begin, end);
  if (v < vectors) MultiplyTile<E, 1>(a, b, b_stride, depth, v, begin, end);
}

// Initial values of a product, and destinations of its result.
struct FromZero {
  HWY_INLINE Vf operator()(int64_t /*r*/, int64_t /*v*/) const { return hn::Zero(Df()); }
};
struct FromMemory {
  const float* from;
  int64_t stride;
  HWY_INLINE Vf operator()(int64_t r, int64_t v) const {
    return hn::Load(Df(), from + r * stride + v * LaneCount());
  }
};
struct ToMemory {
  float* to;
  int64_t stride;
  template <class Tile>
  HWY_INLINE void operator()(Tile& tile, int64_t v0) const {
    tile.ForEach([&](int64_t r, int64_t v, Vf acc)
                     HWY_ATTR { hn::Store(acc, Df(), to + r * stride + (v0 + v) * LaneCount()); });
  }
};

// Writes to the first `rows` rows of a tensor, n channels of each, row r times
// factor[r * factor_step].
template <class E>
class ToRows {
 public:
  HWY_INLINE ToRows(typename E::Tensor* to, int64_t stride, int64_t rows, int64_t n,
                    const float* factor, int64_t factor_step)
      : to_(reinterpret_cast<typename E::Output*>(to)),
        stride_(stride),
        rows_(rows),
        last_((VectorCount(n) - 1) * LaneCount()),
        tail_(Df(), n - last_),
        factor_(factor),
        factor_step_(factor_step) {}

  template <class Tile>
  HWY_INLINE void operator()(Tile& tile, int64_t v0) const {
    tile.ForEach([&](int64_t r, int64_t v, Vf acc) HWY_ATTR {
      const Df d;
      if (r >= rows_) return;
      const int64_t e = (v0 + v) * LaneCount();
      const Vf x = hn::Mul(acc, hn::Set(d, factor_[r * factor_step_]));
      if (e < last_) {
        StoreFloats(x, d, to_ + r * stride_ + e);
      } else {
        tail_.Store(x, d, to_ + r * stride_ + e);
      }
    });
  }

 private:
  typename E::Output* to_;
  int64_t stride_;
  int64_t rows_;
  int64_t last_;  // offset of the last vector of a row
  FloatTail<Df> tail_;
  const float* factor_;
  int64_t factor_step_;
};

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
