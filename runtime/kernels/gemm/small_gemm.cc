// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/small_gemm.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemm/small_gemm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/gemm/tiles-inl.h"
#include "runtime/kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

// Packs packed[p * width + j] = b[p * ldb + j] for j < n, p < k; `width` is n rounded up to whole
// vectors.
void PackPlain(const float* b, int64_t ldb, int64_t n, int64_t k, int64_t width, float* packed) {
  const D d;
  const int64_t whole = n / kLanes * kLanes;
  const Tail<D> tail(d, whole < n ? n - whole : 1);
  for (int64_t p = 0; p < k; ++p, b += ldb, packed += width) {
    for (int64_t j = 0; j < whole; j += kLanes) hn::StoreU(hn::LoadU(d, b + j), d, packed + j);
    if (whole < n) hn::StoreU(tail.Load(d, b + whole), d, packed + whole);
  }
}

// Adds the terms [p0, p0 + k) to every sum.
template <bool kTransposeA, bool kTransposeB>
void AddTerms(const GemmArgs& g, const GemmStart& start, int64_t p0, int64_t k, float* scratch) {
  const float* a = static_cast<const float*>(g.a) + (kTransposeA ? p0 * g.lda : p0);
  const float* b = static_cast<const float*>(g.b) + (kTransposeB ? p0 : p0 * g.ldb);
  const TileRows rows(g.m, kMaxTileRows);

  // Rows of b at a large stride map to few cache sets; packing them pays off for many tiles.
  const bool copy = !kTransposeB && g.ldb >= 256 && g.m >= 32;

  for (int64_t j = 0; j < g.n; j += 2 * kLanes) {
    const int64_t columns = std::min(g.n - j, 2 * kLanes);
    const int64_t vectors = columns > kLanes ? 2 : 1;

    TileArgs t;
    t.k = k;
    t.lda = g.lda;
    t.ldc = g.ldc;
    t.last_columns = columns - (vectors - 1) * kLanes;
    t.ld_from = start.ld;
    if (kTransposeB || copy) {
      t.ldb = vectors * kLanes;
      if (kTransposeB) {
        PackTransposed(b + j * g.ldb, g.ldb, columns, k, t.ldb, scratch);
      } else {
        PackPlain(b + j, g.ldb, columns, k, t.ldb, scratch);
      }
      t.b = scratch;
    } else {
      t.ldb = g.ldb;
      t.b = b + j;
    }
    const bool partial = t.last_columns != kLanes;
    const TileFn tile = PickTile<kTransposeA>(rows.height, vectors, partial);
    const TileFn tall =
        rows.taller == 0 ? tile : PickTile<kTransposeA>(rows.height + 1, vectors, partial);
    for (int64_t at = 0, i = 0; at < rows.tiles; i += rows.GetHeight(at), ++at) {
      t.a = a + (kTransposeA ? i : i * g.lda);
      t.c = g.c + i * g.ldc + j;
      t.from = start.sums == nullptr ? nullptr : start.sums + i * start.ld + j;
      (at < rows.taller ? tall : tile)(t);
    }
  }
}

template <bool kTransposeA, bool kTransposeB>
void SmallGemm(const GemmArgs& g, const GemmStart& start, float* scratch) {
  const GemmStart c = {g.c, g.ldc};
  const GemmStart& first = g.accumulate ? c : start;
  if (g.k <= kMaxSmallGemmTerms) {
    return AddTerms<kTransposeA, kTransposeB>(g, first, 0, g.k, scratch);
  }
  // The KC blocks have equal sizes; a panel of b and the rows of a stay in the caches.
  const int64_t parts = CeilDiv(g.k, kMaxSmallGemmTerms);
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = g.k * i / parts, end = g.k * (i + 1) / parts;
    AddTerms<kTransposeA, kTransposeB>(g, i == 0 ? first : c, begin, end - begin, scratch);
  }
}

SmallGemmFn Select(bool transpose_a, bool transpose_b) {
  if (transpose_a) return transpose_b ? &SmallGemm<true, true> : &SmallGemm<true, false>;
  return transpose_b ? &SmallGemm<false, true> : &SmallGemm<false, false>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

SmallGemmFn SelectSmallGemm(bool transpose_a, bool transpose_b) {
  return HWY_DYNAMIC_DISPATCH(Select)(transpose_a, transpose_b);
}

}  // namespace plumb
#endif  // HWY_ONCE
