// SPDX-License-Identifier: Apache-2.0
// Register tiles of an f32 matrix product, for small_gemm.cc. Included once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_GEMM_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_GEMM_TILES_INL_H_
#undef PLUMB_RUNTIME_KERNELS_GEMM_TILES_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_GEMM_TILES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/simd/tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): only small_gemm.cc includes
// this file, and the compiler inlines more of functions that no other source can call.
namespace {

// Heights of the tiles of `rows` rows. They differ by at most one, since 5 + 4 rows are faster than
// 8 + 1.
struct TileRows {
  int64_t tiles, height, taller;  // the first `taller` tiles have one more row

  TileRows(int64_t rows, int64_t tallest)
      : tiles(rows <= tallest ? 1 : CeilDiv(rows, tallest)),
        height(tiles == 1 ? rows : rows / tiles),
        taller(rows - height * tiles) {}
  int64_t GetHeight(int64_t tile) const { return tile < taller ? height + 1 : height; }
};

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kPanel = 2 * kLanes;  // number of columns of a panel of b
static_assert(kPanel <= 32, "scratch sizes assume panels of at most 32 columns");

// Rows of a tile: two vectors of columns per row, a vector of b for each and one of a must fit the
// registers (32 with AVX-512, else 16).
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kMaxTileRows = 14;
#else
constexpr int64_t kMaxTileRows = 6;
#endif

// Arguments for a tile of c: `rows` x (1 or 2 vectors). Leading dimensions are in elements.
struct TileArgs {
  int64_t k;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  int64_t last_columns;  // number of columns of the last vector
  const float* from;     // initial sums, with rows ld_from apart; null: zeros
  int64_t ld_from;
};
using TileFn = void (*)(const TileArgs& t);

template <int kRows, int kVectors, bool kTransposeA, bool kPartial>
void Tile(const TileArgs& t) {
  const D d;
  const Tail<D> tail(d, t.last_columns);
  const auto load = [&](const float* p, int v) HWY_ATTR {
    return kPartial && v == kVectors - 1 ? tail.Load(d, p) : hn::LoadU(d, p);
  };

  V sum[kRows][kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      sum[i][v] = t.from != nullptr ? load(t.from + i * t.ld_from + v * kLanes, v) : hn::Zero(d);
    }
  }

  // One pointer per four rows, since addressing modes reach the other three.
  constexpr int kPointers = kTransposeA ? 1 : CeilDiv(kRows, 4);
  const int64_t lda = t.lda, ldb = t.ldb;
  const float* a[kPointers];
  for (int i = 0; i < kPointers; ++i) a[i] = t.a + 4 * i * lda;
  const float* b = t.b;
  for (int64_t p = 0; p < t.k; ++p) {
    V row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes, v);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, kTransposeA ? a[0][i] : a[i / 4 % kPointers][i % 4 * lda]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x, row[v], sum[i][v]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) a[i] += kTransposeA ? lda : 1;
    b += ldb;
  }

#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* c = t.c + i * t.ldc + v * kLanes;
      if (kPartial && v == kVectors - 1) {
        tail.Store(sum[i][v], d, c);
      } else {
        hn::StoreU(sum[i][v], d, c);
      }
    }
  }
}

template <bool kTransposeA, int kRows = kMaxTileRows>
TileFn PickTile(int64_t rows, int64_t vectors, bool partial) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return PickTile<kTransposeA, kRows - 1>(rows, vectors, partial);
  }
  if (vectors == 1) {
    return partial ? &Tile<kRows, 1, kTransposeA, true> : &Tile<kRows, 1, kTransposeA, false>;
  }
  return partial ? &Tile<kRows, 2, kTransposeA, true> : &Tile<kRows, 2, kTransposeA, false>;
}

}  // namespace
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
