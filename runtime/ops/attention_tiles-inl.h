// What forward and backward attention are made of: packing, and two register-blocked matrix
// products. Included once per Highway target.
#if defined(PLUMB_RUNTIME_OPS_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_OPS_ATTENTION_TILES_INL_H_
#undef PLUMB_RUNTIME_OPS_ATTENTION_TILES_INL_H_
#else
#define PLUMB_RUNTIME_OPS_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Df = hn::ScalableTag<float>;
using Vf = hn::Vec<Df>;

// Vectors that a tile holds for each of its kRowTile rows: accumulators, operands and broadcasts
// must fit the registers (32 in AVX3, 16 else).
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int64_t kTileVectors = 4;
#else
inline constexpr int64_t kTileVectors = 2;
#endif

HWY_INLINE int64_t VectorCount(int64_t elements) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  return (elements + lanes - 1) / lanes;
}

// to[j][0, width) = from[j][0, n), zero-filled to whole vectors.
HWY_INLINE void PackRows(const float* from, int64_t stride, int64_t rows, int64_t n, float* to,
                         int64_t width) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = (VectorCount(n) - 1) * lanes;
  const Tail<Df> tail(d, n - last);
  for (int64_t j = 0; j < rows; ++j) {
    const float* row = from + j * stride;
    float* packed = to + j * width;
    for (int64_t e = 0; e < last; e += lanes) hn::Store(hn::LoadU(d, row + e), d, packed + e);
    hn::Store(tail.Load(d, row + last), d, packed + last);
  }
}

// to[e][j] = factor * from[j][e] for j < rows <= kKeyBlock, e < n; rows of `to` are kKeyBlock
// apart.
HWY_INLINE void PackTransposed(const float* from, int64_t stride, int64_t rows, int64_t n,
                               float factor, float* to) {
  int64_t done = 0;  // channels
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const auto scale = hn::Set(d, factor);
  done = n / 4 * 4;
  for (int64_t j = 0; j < rows; j += 4) {
    // The last rows repeat where there are fewer than four: the copies land in padding.
    const float* r0 = from + j * stride;
    const float* r1 = from + std::min(j + 1, rows - 1) * stride;
    const float* r2 = from + std::min(j + 2, rows - 1) * stride;
    const float* r3 = from + std::min(j + 3, rows - 1) * stride;
    for (int64_t e = 0; e < done; e += 4) {
      const auto a = hn::Mul(hn::LoadU(d, r0 + e), scale);
      const auto b = hn::Mul(hn::LoadU(d, r1 + e), scale);
      const auto c = hn::Mul(hn::LoadU(d, r2 + e), scale);
      const auto f = hn::Mul(hn::LoadU(d, r3 + e), scale);
      const auto ac_low = hn::InterleaveLower(d, a, c);  // a0 c0 a1 c1
      const auto ac_high = hn::InterleaveUpper(d, a, c);
      const auto bf_low = hn::InterleaveLower(d, b, f);
      const auto bf_high = hn::InterleaveUpper(d, b, f);
      float* out = to + e * kKeyBlock + j;
      hn::Store(hn::InterleaveLower(d, ac_low, bf_low), d, out);  // a0 b0 c0 f0
      hn::Store(hn::InterleaveUpper(d, ac_low, bf_low), d, out + kKeyBlock);
      hn::Store(hn::InterleaveLower(d, ac_high, bf_high), d, out + 2 * kKeyBlock);
      hn::Store(hn::InterleaveUpper(d, ac_high, bf_high), d, out + 3 * kKeyBlock);
    }
  }
#endif
  for (int64_t e = done; e < n; ++e) {
    for (int64_t j = 0; j < rows; ++j) to[e * kKeyBlock + j] = factor * from[j * stride + e];
  }
}

// kRowTile rows by kVectors vectors of accumulators. The arrays are unrolled into registers.
template <int64_t kVectors>
struct Tile {
  Vf acc[kRowTile][kVectors];

  HWY_INLINE void Zero() {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(Df());
    }
  }

  // acc[r] += a[r * a_stride] * b.
  HWY_INLINE void MultiplyAdd(const float* HWY_RESTRICT a, int64_t a_stride,
                              const float* HWY_RESTRICT b) {
    const Df d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    Vf operand[kVectors];
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) operand[v] = hn::Load(d, b + v * lanes);
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowTile; ++r) {
      const Vf factor = hn::Set(d, a[r * a_stride]);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::MulAdd(factor, operand[v], acc[r][v]);
      }
    }
  }

  HWY_INLINE void LoadScaled(const float* from, int64_t stride, const float* factors) {
    const Df d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowTile; ++r) {
      const Vf factor = hn::Set(d, factors[r]);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::Mul(factor, hn::Load(d, from + r * stride + v * lanes));
      }
    }
  }

  HWY_INLINE void Load(const float* from, int64_t stride) {
    const Df d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::Load(d, from + r * stride + v * lanes);
      }
    }
  }

  HWY_INLINE void Store(float* to, int64_t stride) const {
    const Df d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        hn::Store(acc[r][v], d, to + r * stride + v * lanes);
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

template <int64_t kVectors, class Begin>
HWY_INLINE void MultiplyTile(const LeftOperand& a, const float* b, int64_t b_stride, int64_t depth,
                             float* c, int64_t c_stride, const Begin& begin) {
  Tile<kVectors> tile;
  begin(tile, c);
  for (int64_t k = 0; k < depth; ++k) {
    tile.MultiplyAdd(a.data + k * a.k_stride, a.row_stride, b + k * b_stride);
  }
  tile.Store(c, c_stride);
}

// kRowTile rows of c = begin(c) + a b, where b is [depth, vectors] in packed rows.
template <class Begin>
HWY_INLINE void MultiplyRows(const LeftOperand& a, const float* b, int64_t b_stride, int64_t depth,
                             int64_t vectors, float* c, int64_t c_stride, const Begin& begin) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  int64_t v = 0;
  if constexpr (kTileVectors >= 4) {
    for (; v + 4 <= vectors; v += 4) {
      MultiplyTile<4>(a, b + v * lanes, b_stride, depth, c + v * lanes, c_stride, begin);
    }
  }
  for (; v + 2 <= vectors; v += 2) {
    MultiplyTile<2>(a, b + v * lanes, b_stride, depth, c + v * lanes, c_stride, begin);
  }
  for (; v < vectors; ++v) {
    MultiplyTile<1>(a, b + v * lanes, b_stride, depth, c + v * lanes, c_stride, begin);
  }
}

// Ways in which a product may start: from nothing, from what c holds, from what c holds scaled by
// row.
struct FromZero {
  template <class T>
  HWY_INLINE void operator()(T& tile, const float*) const {
    tile.Zero();
  }
};
struct FromSum {
  int64_t stride;
  template <class T>
  HWY_INLINE void operator()(T& tile, const float* c) const {
    tile.Load(c, stride);
  }
};
struct FromScaledSum {
  int64_t stride;
  const float* factors;  // [kRowTile]
  template <class T>
  HWY_INLINE void operator()(T& tile, const float* c) const {
    tile.LoadScaled(c, stride, factors);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
