// SPDX-License-Identifier: Apache-2.0
// Transposition of an f32 matrix, by which small_gemm.cc and gemv.cc pack operands. Included once
// per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_TRANSPOSE_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_TRANSPOSE_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): the compiler inlines more of
// functions that no other source can call.
namespace {

#if HWY_TARGET == HWY_SCALAR

void PackTransposed(const float* b, int64_t ldb, int64_t n, int64_t k, int64_t width,
                    float* packed) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t p = 0; p < k; ++p) packed[p * width + j] = b[j * ldb + p];
  }
}

#else

// Loads groups of four elements: group g from p + 4 * g * stride.
template <class DB>
HWY_INLINE hn::Vec<DB> LoadGroups(DB d, const float* p, int64_t stride) {
  if constexpr (hn::MaxLanes(DB()) == 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<DB> half;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, LoadGroups(half, p + kHalf * stride, stride),
                       LoadGroups(half, p, stride));
  }
}

// Loads groups of four elements: group g from rows[4 * g] + p.
template <class DB>
HWY_INLINE hn::Vec<DB> LoadGroups(DB d, const float* const* rows, int64_t p) {
  if constexpr (hn::MaxLanes(DB()) == 4) {
    return hn::LoadU(d, rows[0] + p);
  } else {
    const hn::Half<DB> half;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, LoadGroups(half, rows + kHalf, p), LoadGroups(half, rows, p));
  }
}

// Transposes four vectors of 4-element groups (group g of r[i]: elements p..p+3 of row 4g+i) to the
// columns p..p+3 of one vector of rows.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreTransposed(D d, const V r0, const V r1, const V r2, const V r3, int64_t width,
                                float* to) {
  const hn::Repartition<double, D> d64;
  const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto t1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto t3 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, t0, t1)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, t0, t1)), d, to + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, t2, t3)), d, to + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, t2, t3)), d, to + 3 * width);
}

#if HWY_TARGET == HWY_AVX3
// Does the same for sixteen columns, p..p+15 of the rows `from`, ldb apart: one cache line of each,
// read once. Rows at a large power of two map to few L1 sets, so their lines would be evicted
// between groups of four columns.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreTransposedLines(D d, const float* from, int64_t ldb, int64_t width,
                                     float* to) {
  static_assert(hn::MaxLanes(D()) == 16, "blocks of sixteen by sixteen");
  const hn::Repartition<double, D> d64;
  // transposed[c][g] has, in each block b of four lanes, column 4b + c of rows 4g .. 4g + 3.
  V transposed[4][4];
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const float* const rows = from + 4 * g * ldb;
    const V r0 = hn::LoadU(d, rows), r1 = hn::LoadU(d, rows + ldb);
    const V r2 = hn::LoadU(d, rows + 2 * ldb), r3 = hn::LoadU(d, rows + 3 * ldb);
    const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto t1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto t3 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    transposed[0][g] = hn::BitCast(d, hn::InterleaveLower(d64, t0, t1));
    transposed[1][g] = hn::BitCast(d, hn::InterleaveUpper(d64, t0, t1));
    transposed[2][g] = hn::BitCast(d, hn::InterleaveLower(d64, t2, t3));
    transposed[3][g] = hn::BitCast(d, hn::InterleaveUpper(d64, t2, t3));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const V(&t)[4] = transposed[c];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {  // lower and upper half of the blocks
      const V even =
          half == 0 ? hn::ConcatLowerLower(d, t[2], t[0]) : hn::ConcatUpperUpper(d, t[2], t[0]);
      const V odd =
          half == 0 ? hn::ConcatLowerLower(d, t[3], t[1]) : hn::ConcatUpperUpper(d, t[3], t[1]);
      float* const column = to + (8 * half + c) * width;
      hn::StoreU(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even), d, column);
      hn::StoreU(hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even)), d, column + 4 * width);
    }
  }
}
#endif

// Packs packed[p * width + j] = b[j * ldb + p] for j < n, p < k; `width` is n rounded up to whole
// vectors. Columns beyond n are copies of the last one; the caller ignores their products.
void PackTransposed(const float* b, int64_t ldb, int64_t n, int64_t k, int64_t width,
                    float* packed) {
  if (k < 4) {
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = 0; j < width; ++j) packed[p * width + j] = b[std::min(j, n - 1) * ldb + p];
    }
    return;
  }
  const hn::ScalableTag<float> d;
  constexpr int64_t kColumns = static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t j = 0; j < width; j += kColumns) {
    // The last group of columns may overlap the previous one, whose values are then written again.
    if (n - j >= kColumns) {
      const float* rows = b + j * ldb;
#if HWY_TARGET == HWY_AVX3
      if (k >= kColumns) {
        for (int64_t next = 0; next < k; next += kColumns) {
          const int64_t p = std::min(next, k - kColumns);
          StoreTransposedLines(d, rows + p, ldb, width, packed + p * width + j);
        }
        continue;
      }
#endif
      for (int64_t next = 0; next < k; next += 4) {
        const int64_t p = std::min(next, k - 4);
        StoreTransposed(d, LoadGroups(d, rows + p, ldb), LoadGroups(d, rows + ldb + p, ldb),
                        LoadGroups(d, rows + 2 * ldb + p, ldb),
                        LoadGroups(d, rows + 3 * ldb + p, ldb), width, packed + p * width + j);
      }
    } else {
      const float* rows[kColumns];
      for (int64_t i = 0; i < kColumns; ++i) rows[i] = b + std::min(j + i, n - 1) * ldb;
      for (int64_t next = 0; next < k; next += 4) {
        const int64_t p = std::min(next, k - 4);
        StoreTransposed(d, LoadGroups(d, rows, p), LoadGroups(d, rows + 1, p),
                        LoadGroups(d, rows + 2, p), LoadGroups(d, rows + 3, p), width,
                        packed + p * width + j);
      }
    }
  }
}

#endif

}  // namespace
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
