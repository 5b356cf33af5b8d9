// The kernels of blocked products with f32 arithmetic: of f32 operands, and of bf16 ones on
// processors that cannot multiply those.
#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/kernels/simd/cpu_features.h"
#include "runtime/kernels/gemm/matmul_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemm/matmul_f32.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/gemm/tiles-inl.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

void Multiply(const PanelArgs& g) {
  const TileRows split(g.rows, kMaxTileRows);
  const int64_t vectors = g.columns > kLanes ? 2 : 1;
  TileArgs t;
  t.k = g.units;
  t.lda = g.lda;
  if (g.b_rows != nullptr) {
    t.b = static_cast<const float*>(g.b_rows);
    t.ldb = g.ld_rows;
    t.copy = g.packs;
    t.ld_copy = g.width;
  } else {
    t.b = g.b;
    t.ldb = g.width;
  }
  t.bias = g.start;
  t.ldc = g.ldc;
  t.last_columns = g.columns - (vectors - 1) * kLanes;
  t.to_come = g.to_come;
  t.lines = LinesAStretch(g, split.tiles);
  const bool partial = t.last_columns != kLanes;
  const bool asks = g.to_come != nullptr;
  const auto pick = [&](int64_t height) {
    if (g.tiled) {
      return asks ? PickTile<true, true>(height, vectors, partial)
                  : PickTile<true>(height, vectors, partial);
    }
    return asks ? PickTile<false, true>(height, vectors, partial)
                : PickTile<false>(height, vectors, partial);
  };
  const TileFn tile = pick(split.height);
  const TileFn tall = split.taller == 0 ? tile : pick(split.height + 1);
  for (int64_t i = 0, row = 0; i < split.tiles; ++i) {
    const int64_t height = split.HeightOf(i);
    t.a = g.a + (!g.tiled ? row * g.lda : g.lda > 0 ? row : row * g.units);
    if (g.tiled && g.lda == 0) t.lda = height;
    t.c = g.c + row * g.ldc;
    t.from = g.from == nullptr ? nullptr : g.from + row * g.ldc;
    AskForSums(g, row, height, i + 1 < split.tiles ? split.HeightOf(i + 1) : 0);
    (i < split.taller ? tall : tile)(t);
    if (t.copy != nullptr) {
      t.b = std::exchange(t.copy, nullptr);
      t.ldb = g.width;
    }
    row += height;
  }
}

// `count` elements from memory that holds T.
template <class T>
HWY_INLINE void Copy(const T* from, int64_t count, float* to) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(LoadFloats(d, from + i), d, to + i);
  if (i < count) {
    const FloatTail<D> tail(d, count - i);
    tail.Store(tail.Load(d, from + i), d, to + i);
  }
}

template <class T>
void PackA(const PackArgs& p) {
  const T* from = static_cast<const T*>(p.from) + p.first * p.ld + p.k0;
  for (int64_t i = 0; i < p.count; ++i) Copy(from + i * p.ld, p.terms, p.to + i * p.terms);
}

// Rows of the transposed matrix one after the other: each lies in one page, and all tiles together
// take whole lines of it.
template <class T>
void PackATransposed(const PackArgs& p) {
  const TileRows split(p.count, kMaxTileRows);
  const hn::CappedTag<float, 8> d;
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(d));
  const auto copy = [&](const T* from, int64_t height, float* to, const auto& tail) HWY_ATTR {
    int64_t i = 0;
    for (; i + kStep <= height; i += kStep) hn::StoreU(LoadFloats(d, from + i), d, to + i);
    if (i < height) tail.Store(tail.Load(d, from + i), d, to + i);
  };
  using Rest = FloatTail<decltype(d)>;
  const Rest tall_tail(d, std::max<int64_t>(1, (split.height + 1) % kStep));
  const Rest tail(d, std::max<int64_t>(1, split.height % kStep));
  for (int64_t k = 0; k < p.terms; ++k) {
    const T* from = static_cast<const T*>(p.from) + (p.k0 + k) * p.ld + p.first;
    AskForRow(from + kRowsAhead * p.ld, p.count * static_cast<int64_t>(sizeof(T)));
    float* to = p.to;  // the tile's
    for (int64_t i = 0; i < split.taller; ++i, from += split.height + 1) {
      copy(from, split.height + 1, to + k * (split.height + 1), tall_tail);
      to += p.terms * (split.height + 1);
    }
    for (int64_t i = split.taller; i < split.tiles; ++i, from += split.height) {
      copy(from, split.height, to + k * split.height, tail);
      to += p.terms * split.height;
    }
  }
}

template <class T>
void PackB(const PackArgs& p) {
  const T* from = static_cast<const T*>(p.from) + p.k0 * p.ld + p.first;
  const int64_t bytes = p.count * static_cast<int64_t>(sizeof(T));
  for (int64_t k = 0; k < p.terms; ++k) {
    if (p.asks) AskForRow(from + (k + kRowsAhead) * p.ld, bytes);
    Copy(from + k * p.ld, p.count, p.to + k * p.width);
  }
}

void PackBTransposedF32(const PackArgs& p) {
  PackTransposed(static_cast<const float*>(p.from) + p.first * p.ld + p.k0, p.ld, p.count, p.terms,
                 p.width, p.asks, p.to);
}

// Parts of the rows are converted, then transposed.
void PackBTransposedBf16(const PackArgs& p) {
  constexpr int64_t kPart = 64;
  HWY_ALIGN float rows[kPanel * kPart];
  const uint16_t* from = static_cast<const uint16_t*>(p.from) + p.first * p.ld + p.k0;
  for (int64_t k = 0; k < p.terms; k += kPart) {
    const int64_t terms = std::min(kPart, p.terms - k);
    for (int64_t j = 0; j < p.count; ++j) Copy(from + j * p.ld + k, terms, rows + j * kPart);
    PackTransposed(rows, kPart, p.count, terms, p.width, /*asks=*/false, p.to + k * p.width);
  }
}

MatmulKernels Kernels(bool bf16) {
  MatmulKernels kernels{};
  kernels.unit_terms = 1;
  kernels.tile_rows = kMaxTileRows;
  kernels.panel = kPanel;
  kernels.lanes = kLanes;
  kernels.a_in_place = kernels.a_transposed_in_place = kernels.b_in_place = !bf16;
  kernels.packs_b = !bf16;
  kernels.pack_a = bf16 ? &PackA<uint16_t> : &PackA<float>;
  kernels.pack_a_transposed = bf16 ? &PackATransposed<uint16_t> : &PackATransposed<float>;
  kernels.pack_b = bf16 ? &PackB<uint16_t> : &PackB<float>;
  kernels.pack_b_transposed = bf16 ? &PackBTransposedBf16 : &PackBTransposedF32;
  kernels.multiply = &Multiply;
  return kernels;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Kernels);

MatmulKernels SelectMatmulKernels(DType operands) {
  const bool bf16 = operands == DType::kBF16;
  if (bf16 && UsesBf16Pairs()) return FastBf16MatmulKernels();
  return HWY_DYNAMIC_DISPATCH(Kernels)(bf16);
}

}  // namespace plumb
#endif  // HWY_ONCE
