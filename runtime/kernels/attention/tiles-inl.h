// What forward and backward attention are made of: packing and a register-blocked matrix
// product. Included once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_
#undef PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Df = hn::ScalableTag<float>;
using Vf = hn::Vec<Df>;

// A tile is kRowTile rows of at most two vectors: accumulators, operands and broadcasts must fit
// the registers (32 in AVX3, 16 else), and hide the latency of a multiply-add.
#if HWY_TARGET == HWY_AVX3
inline constexpr int64_t kRowTile = 8;
#else
inline constexpr int64_t kRowTile = 4;
#endif
static_assert(kMaxRowTile % kRowTile == 0, "blocks are whole tiles");

HWY_INLINE int64_t VectorCount(int64_t elements) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  return CeilDiv(elements, lanes);
}

// to[j][0, n) = from[j][0, n), zero-filled to whole vectors, for j < rows.
template <class T>
HWY_INLINE void PackRows(const T* from, int64_t stride, int64_t rows, int64_t n, float* to,
                         int64_t width) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = (VectorCount(n) - 1) * lanes;
  const FloatTail<Df> tail(d, n - last);
  for (int64_t j = 0; j < rows; ++j) {
    const T* row = from + j * stride;
    float* packed = to + j * width;
    for (int64_t e = 0; e < last; e += lanes) hn::Store(LoadFloats(d, row + e), d, packed + e);
    hn::Store(tail.Load(d, row + last), d, packed + last);
  }
}

HWY_INLINE void ZeroRows(float* rows, int64_t begin, int64_t end, int64_t width) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t e = begin * width; e < end * width; e += lanes) hn::Store(hn::Zero(d), d, rows + e);
}

// PackRows with zeros in the rows that the last tile has beyond `rows`.
template <class T>
HWY_INLINE void PackTiles(const T* from, int64_t stride, int64_t rows, int64_t n, float* to,
                          int64_t width) {
  PackRows(from, stride, rows, n, to, width);
  ZeroRows(to, rows, RoundUp(rows, kRowTile), width);
}

// to[0, n) = factor * from[0, n), or the same added to what is there.
template <bool kAdd, class T>
HWY_INLINE void UnpackRow(const float* from, Vf factor, T* to, int64_t last,
                          const FloatTail<Df>& tail) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t e = 0; e < last; e += lanes) {
    const Vf x = hn::Mul(hn::Load(d, from + e), factor);
    StoreFloats(kAdd ? hn::Add(LoadFloats(d, to + e), x) : x, d, to + e);
  }
  const Vf x = hn::Mul(hn::Load(d, from + last), factor);
  tail.Store(kAdd ? hn::Add(tail.Load(d, to + last), x) : x, d, to + last);
}

#if HWY_TARGET != HWY_SCALAR
// Groups of four elements: group g stands at rows[4 * g] + e.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadGroups(D d, const T* const* rows, int64_t e) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return LoadFloats(d, rows[0] + e);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, LoadGroups(half, rows + kHalf, e), LoadGroups(half, rows, e));
  }
}
#endif

// to[e][j] = from[j][e] for j < rows <= kKeyBlock, e < n; rows of `to` are kKeyBlock
// apart. Up to a whole vector beyond `rows`, anything may stand there.
template <class T>
HWY_INLINE void PackTransposed(const T* from, int64_t stride, int64_t rows, int64_t n, float* to) {
  int64_t done = 0;  // channels
#if HWY_TARGET != HWY_SCALAR
  const Df d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Df()));
  const hn::Repartition<double, Df> d64;
  done = n / 4 * 4;
  for (int64_t j = 0; j < rows; j += kLanes) {
    const T* row[kLanes];  // the last one repeats where there are fewer
    for (int64_t i = 0; i < kLanes; ++i) row[i] = from + std::min(j + i, rows - 1) * stride;
    for (int64_t e = 0; e < done; e += 4) {
      // Vector i holds channels e to e + 3 of rows i, 4 + i, 8 + i, ..
      const Vf r0 = LoadGroups(d, row, e);
      const Vf r1 = LoadGroups(d, row + 1, e);
      const Vf r2 = LoadGroups(d, row + 2, e);
      const Vf r3 = LoadGroups(d, row + 3, e);
      const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      const auto t1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      const auto t3 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      float* out = to + e * kKeyBlock + j;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, t0, t1)), d, out);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, t0, t1)), d, out + kKeyBlock);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, t2, t3)), d, out + 2 * kKeyBlock);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, t2, t3)), d, out + 3 * kKeyBlock);
    }
  }
#endif
  const hn::CappedTag<float, 1> one;
  for (int64_t e = done; e < n; ++e) {
    for (int64_t j = 0; j < rows; ++j) {
      to[e * kKeyBlock + j] = hn::GetLane(LoadFloats(one, from + j * stride + e));
    }
  }
}

// kRowTile rows by kVectors vectors of accumulators. The arrays are unrolled into registers.
template <int64_t kVectors>
struct Tile {
  Vf acc[kRowTile][kVectors];

  // body(row, vector, accumulator) for each of them.
  template <class Body>
  HWY_INLINE void ForEach(const Body& body) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) body(r, v, acc[r][v]);
    }
  }

  // acc[r] += a[r * a_stride] * b.
  HWY_INLINE void MultiplyAdd(const float* HWY_RESTRICT a, int64_t a_stride,
                              const float* HWY_RESTRICT b) {
    const Df d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    Vf operand[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) operand[v] = hn::Load(d, b + v * lanes);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRowTile; ++r) {
      const Vf factor = hn::Set(d, a[r * a_stride]);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::MulAdd(factor, operand[v], acc[r][v]);
      }
    }
  }
};

// The left operand of a product: element (r, k) stands at data[r * row_stride + k * k_stride].
struct LeftOperand {
  const float* data;
  int64_t row_stride;
  int64_t k_stride;
};

// kRowTile rows of begin + a b, where b is [depth, vectors] in packed rows: begin(r, v, acc) sets
// accumulators, end(r, v, acc) takes them, for the vectors v of row r.
template <int64_t kVectors, class Begin, class End>
HWY_INLINE void MultiplyTile(const LeftOperand& a, const float* b, int64_t b_stride, int64_t depth,
                             int64_t v0, const Begin& begin, const End& end) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  Tile<kVectors> tile;
  tile.ForEach([&](int64_t r, int64_t v, Vf& acc) HWY_ATTR { acc = begin(r, v0 + v); });
  const float* left = a.data;
  const float* right = b + v0 * lanes;
  for (int64_t k = 0; k < depth; ++k, left += a.k_stride, right += b_stride) {
    tile.MultiplyAdd(left, a.row_stride, right);
  }
  tile.ForEach([&](int64_t r, int64_t v, Vf& acc) HWY_ATTR { end(r, v0 + v, acc); });
}

template <class Begin, class End>
HWY_INLINE void MultiplyRows(const LeftOperand& a, const float* b, int64_t b_stride, int64_t depth,
                             int64_t vectors, const Begin& begin, const End& end) {
  int64_t v = 0;
  for (; v + 2 <= vectors; v += 2) MultiplyTile<2>(a, b, b_stride, depth, v, begin, end);
  if (v < vectors) MultiplyTile<1>(a, b, b_stride, depth, v, begin, end);
}

// Where a product starts, and where it goes.
struct FromZero {
  HWY_INLINE Vf operator()(int64_t /*r*/, int64_t /*v*/) const { return hn::Zero(Df()); }
};
struct FromMemory {
  const float* from;
  int64_t stride;
  HWY_INLINE Vf operator()(int64_t r, int64_t v) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
    return hn::Load(Df(), from + r * stride + v * lanes);
  }
};
struct ToMemory {
  float* to;
  int64_t stride;
  HWY_INLINE void operator()(int64_t r, int64_t v, Vf acc) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
    hn::Store(acc, Df(), to + r * stride + v * lanes);
  }
};

// To the first `rows` rows of a tensor, n channels of each, row r times factor[r * factor_step].
template <class T>
struct ToRows {
  T* to;
  int64_t stride;
  int64_t rows;
  int64_t last;  // where the last vector of a row begins
  FloatTail<Df> tail;
  const float* factor;
  int64_t factor_step;

  HWY_INLINE ToRows(T* to_, int64_t stride_, int64_t rows_, int64_t n, const float* factor_,
                    int64_t factor_step_)
      : to(to_),
        stride(stride_),
        rows(rows_),
        last((VectorCount(n) - 1) * static_cast<int64_t>(hn::Lanes(Df()))),
        tail(Df(), n - last),
        factor(factor_),
        factor_step(factor_step_) {}

  HWY_INLINE void operator()(int64_t r, int64_t v, Vf acc) const {
    const Df d;
    if (r >= rows) return;
    const int64_t e = v * static_cast<int64_t>(hn::Lanes(d));
    const Vf x = hn::Mul(acc, hn::Set(d, factor[r * factor_step]));
    if (e < last) {
      StoreFloats(x, d, to + r * stride + e);
    } else {
      tail.Store(x, d, to + r * stride + e);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
