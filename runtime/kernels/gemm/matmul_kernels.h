// What a large matrix product (matmul_panels.h, matmul_tokens.cc) is made of, for one kind of
// operands: packing into panels, and the product of a slab of rows by one panel. Stateless,
// thread-safe.
//
// Packed operands count in units of 32 bits along k: one f32, or a pair of bf16, which the fast
// bf16 kernels multiply in one go. Where k is odd, the last pair is filled up with zero.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_MATMUL_KERNELS_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_MATMUL_KERNELS_H_

#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/base/tensor_type.h"
#include "runtime/kernels/gemm/rows_to_come.h"

namespace plumb {

// How the rows of a slab are divided into tiles: heights that differ by one at most, since 9 rows
// are better as 5 + 4 than as 8 + 1.
struct TileRows {
  int64_t tiles, height, taller;  // the first `taller` tiles have one row more

  TileRows(int64_t rows, int64_t tallest)
      : tiles(rows <= tallest ? 1 : CeilDiv(rows, tallest)),
        height(tiles == 1 ? rows : rows / tiles),
        taller(rows - height * tiles) {}
  int64_t HeightOf(int64_t tile) const { return tile < taller ? height + 1 : height; }
};

// One part of an operand: `count` rows or columns of the result, beginning at `first`, and terms
// [k0, k0 + terms) of their sums. `first` and k0 are elements of the row-major matrix `from`.
struct PackArgs {
  const void* from;
  int64_t ld;
  int64_t k0, terms;
  int64_t first, count;
  float* to;
  int64_t width;     // of a panel of b: count, rounded up to whole vectors
  bool asks = true;  // for rows ahead of their use; false: the caller has done so
};

// Parts of a scratch begin with a cache line.
inline int64_t AlignFloats(int64_t floats) { return RoundUp(floats, 16); }

inline constexpr int64_t kSlabRows = 126;         // of a, that stay in the second-level cache
inline constexpr int64_t kMaxColumnStride = 512;  // of a transposed a that is read in place
// Of b that is read in place: from the second-level cache, by every tile anew, which costs less
// than to pack it.
inline constexpr int64_t kMaxInPlaceBytes = 512 << 10;
// Activations of at least so many bytes have left the caches when the next op reads them: they are
// asked for while others are multiplied.
inline constexpr int64_t kLeastFarBytes = 2 << 20;

// c[rows, columns] = a b + start, or a b + from.
struct PanelArgs {
  int64_t rows, columns, units;
  // Rows of lda units. `tiled`: tiles of [units][height] or, with lda > 0, the matrix's own rows,
  // lda apart, which are columns here: row i of unit u is a[u * lda + i].
  const float* a;
  int64_t lda;
  bool tiled;
  const float* b;  // [units][width]; in place: the matrix's own rows, `width` apart
  int64_t width;
  // Not null: b is not packed yet. Its rows of whole units begin here, `ld_rows` elements apart;
  // the first tile reads them here and leaves them in `packs`, which is b. `tiled` only.
  const void* b_rows = nullptr;
  int64_t ld_rows = 0;
  float* packs = nullptr;
  // Not null: asked for on the way, `lines` of it, evenly.
  RowsToCome* to_come = nullptr;
  int64_t lines = 0;
  const float* start;  // [columns], or null for zero
  const float* from;   // [rows, columns], rows ldc apart: c itself, or another; null: start
  float* c;
  int64_t ldc;
  bool sums_near = false;  // c and `from` are in the first-level cache already
};

// After every kAskUnits units a tile asks for so many cache lines of what is to come that all tiles
// together ask for g.lines.
inline constexpr int64_t kAskUnits = 32;
inline int64_t LinesAStretch(const PanelArgs& g, int64_t tiles) {
  if (g.to_come == nullptr) return 0;
  const int64_t stretches = tiles * CeilDiv(g.units, kAskUnits);
  return CeilDiv(g.lines, stretches);
}

// Asks for where the sums of a tile go, `height` rows of the slab from `row` on, and for what those
// of the tile after it begin from: memory that a tile would have to wait for at its ends.
[[gnu::always_inline]] inline void AskForSums(const PanelArgs& g, int64_t row, int64_t height,
                                              int64_t next_height) {
  if (g.sums_near) return;
  const auto ask = [&](const float* from, int64_t rows) {
    constexpr int64_t kLineFloats = kCacheLine / SizeOf(DType::kF32);
    for (int64_t i = 0; i < rows; ++i, from += g.ldc) {
      __builtin_prefetch(from);
      __builtin_prefetch(from + kLineFloats);
    }
  };
  if (g.from != g.c) ask(g.c + row * g.ldc, height);
  if (g.from != nullptr) ask(g.from + (row + height) * g.ldc, next_height);
}

struct MatmulKernels {
  int64_t unit_terms;  // 1 or 2 terms of a sum a unit
  int64_t tile_rows;   // the tallest tile
  int64_t panel;       // columns of a panel of b
  int64_t lanes;       // a panel's width is a multiple of it
  bool a_in_place;     // rows of a (not transposed) need no packing where k has only whole units
  bool a_transposed_in_place;            // nor does a transposed a whose rows are near each other
  bool b_in_place;                       // nor b (not transposed), where it is small
  bool packs_b;                          // multiply knows b_rows
  void (*pack_a)(const PackArgs& args);  // to rows of `units`
  void (*pack_a_transposed)(const PackArgs& args);  // to tiles of TileRows(count, tile_rows)
  void (*pack_b)(const PackArgs& args);             // to [units][width]
  void (*pack_b_transposed)(const PackArgs& args);
  void (*multiply)(const PanelArgs& args);

  int64_t Units(int64_t terms) const { return CeilDiv(terms, unit_terms); }
  int64_t Width(int64_t columns) const { return RoundUp(columns, lanes); }
};

// The kernels for this processor. bf16 operands are multiplied as they are where the processor can
// (HasFastBf16), and become f32 while they are packed elsewhere.
MatmulKernels SelectMatmulKernels(DType operands);

// Those with bf16 pair instructions; only to be called where HasFastBf16().
MatmulKernels FastBf16MatmulKernels();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_MATMUL_KERNELS_H_
