// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/tile_gemm.h"

#include <algorithm>

#include "runtime/base/divide.h"

#if defined(__x86_64__)
#if !defined(__clang__)
// gcc 12's own header leaves registers undefined on purpose, and warns about it when it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(                                                        \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")
#endif

#include "runtime/kernels/simd/tile_registers-inl.h"

namespace plumb {
namespace {

constexpr int64_t kTerms = 32;                         // terms of a row of a tile
constexpr int64_t kTileSize = kTileRows * kTileBytes;  // in bytes
constexpr int64_t kBlock = 2 * kTileRows;  // rows and columns that are multiplied at a time
constexpr int64_t kMaxRows = 512, kMaxColumns = 768, kMaxTerms = 384;  // packed at a time

// Transposes 16 x 16 pairs.
inline void Transpose(__m512i (&v)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// An operand: rows of a, or columns of b, which are called rows too.
struct Operand {
  const uint16_t* from;
  int64_t ld;
  bool by_term;  // true if the elements of a term are adjacent, false if those of a row are
  bool is_b;

  const uint16_t* At(int64_t row, int64_t term) const {
    return from + (by_term ? term * ld + row : row * ld + term);
  }
};

// Packs a tile of `rows` rows and `terms` terms, and zeros beyond them. AMX multiplies rows of
// pairs of a by pairs of rows of b.
template <bool kWhole>
inline void PackTile(const Operand& o, const uint16_t* from, int64_t rows, int64_t terms,
                     char* to) {
  const auto load = [&](int64_t row, __mmask32 mask) {
    const uint16_t* const p = from + row * o.ld;
    return kWhole ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(row < rows ? mask : 0, p);
  };
  const auto load_half = [&](int64_t term, __mmask16 mask) {
    const uint16_t* const p = from + term * o.ld;
    return kWhole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                  : _mm256_maskz_loadu_epi16(term < terms ? mask : 0, p);
  };
  __m512i v[16];
  if (o.by_term) {
    const __m512i pairs =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const auto mask = static_cast<__mmask16>((1u << rows) - 1);
#pragma GCC unroll 16
    for (int p = 0; p < 16; ++p) {
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(load_half(2 * p, mask)),
                                              load_half(2 * p + 1, mask), 1);
      v[p] = _mm512_permutexvar_epi16(pairs, both);
    }
  } else {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << terms) - 1);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) v[r] = load(r, mask);
  }
  if (o.by_term != o.is_b) Transpose(v);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + 64 * i, v[i]);
}

// Packs rows [row, row + rows) and terms [term, term + terms): all tiles of 16 rows, then those of
// the next 16, and an even number of such rows of tiles. Reads tiles in the order of the memory.
void Pack(const Operand& o, int64_t row, int64_t rows, int64_t term, int64_t terms, char* to) {
  const int64_t height = CeilDiv(rows, kBlock) * 2, width = CeilDiv(terms, kTerms);
  for (int64_t i = 0; i < height * width; ++i) {
    const int64_t r = o.by_term ? i % height : i / width, t = o.by_term ? i / height : i % width;
    const int64_t rows_left = rows - r * kTileRows, terms_left = terms - t * kTerms;
    const uint16_t* const from = o.At(row + r * kTileRows, term + t * kTerms);
    char* const tile = to + (r * width + t) * kTileSize;
    if (rows_left >= kTileRows && terms_left >= kTerms) {
      PackTile<true>(o, from, kTileRows, kTerms, tile);
    } else {
      PackTile<false>(o, from, std::clamp<int64_t>(rows_left, 0, kTileRows),
                      std::min(kTerms, terms_left), tile);
    }
  }
}

// Computes c[32, 32] = a b, or c + a b, of packed operands with `steps` tiles of terms.
inline void MultiplyBlock(const char* a, const char* b, int64_t steps, bool accumulate, float* c,
                          int64_t ldc) {
  const int64_t pitch = ldc * 4, panel = steps * kTileSize;
  float* const below = c + kTileRows * ldc;
  if (accumulate) {
    _tile_loadd(0, c, pitch);
    _tile_loadd(1, c + kTileRows, pitch);
    _tile_loadd(2, below, pitch);
    _tile_loadd(3, below + kTileRows, pitch);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < panel; i += kTileSize) {
    _tile_loadd(4, a + i, 64);
    _tile_loadd(6, b + i, 64);
    _tile_loadd(7, b + panel + i, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + panel + i, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, pitch);
  _tile_stored(1, c + kTileRows, pitch);
  _tile_stored(2, below, pitch);
  _tile_stored(3, below + kTileRows, pitch);
}

// Does the same for a block of which c has only `rows` rows and `columns` columns.
void MultiplyPart(const char* a, const char* b, int64_t steps, bool accumulate, int64_t rows,
                  int64_t columns, float* c, int64_t ldc) {
  if (rows >= kBlock && columns >= kBlock) {
    return MultiplyBlock(a, b, steps, accumulate, c, ldc);
  }
  alignas(64) float whole[kBlock * kBlock] = {};
  rows = std::min(rows, kBlock);
  columns = std::min(columns, kBlock);
  for (int64_t i = 0; accumulate && i < rows; ++i) {
    std::copy_n(c + i * ldc, columns, whole + i * kBlock);
  }
  MultiplyBlock(a, b, steps, accumulate, whole, kBlock);
  for (int64_t i = 0; i < rows; ++i) std::copy_n(whole + i * kBlock, columns, c + i * ldc);
}

// Returns the bytes of at most `max_rows` packed rows.
int64_t PackedBytes(int64_t rows, int64_t max_rows, int64_t k) {
  return RoundUp(std::min(rows, max_rows), kBlock) * RoundUp(std::min(k, kMaxTerms), kTerms) * 2;
}

}  // namespace

int64_t TileGemmScratch(int64_t rows, int64_t columns, int64_t k) {
  return PackedBytes(rows, kMaxRows, k) + PackedBytes(columns, kMaxColumns, k);
}

void TileGemm(const GemmArgs& g, void* scratch) {
  const Operand a = {static_cast<const uint16_t*>(g.a), g.lda, g.transpose_a, false};
  const Operand b = {static_cast<const uint16_t*>(g.b), g.ldb, !g.transpose_b, true};
  char* const packed_a = static_cast<char*>(scratch);
  char* const packed_b = packed_a + PackedBytes(g.m, kMaxRows, g.k);
  const TileRegisters registers(kTileRows, kTileBytes);
  for (int64_t i = 0; i < g.m; i += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, g.m - i);
    for (int64_t p = 0; p < g.k; p += kMaxTerms) {
      const int64_t terms = std::min(kMaxTerms, g.k - p), steps = CeilDiv(terms, kTerms);
      Pack(a, i, rows, p, terms, packed_a);
      for (int64_t j = 0; j < g.n; j += kMaxColumns) {
        const int64_t columns = std::min(kMaxColumns, g.n - j);
        Pack(b, j, columns, p, terms, packed_b);
        for (int64_t s = 0; s < columns; s += kBlock) {
          for (int64_t r = 0; r < rows; r += kBlock) {
            MultiplyPart(packed_a + r / kTileRows * steps * kTileSize,
                         packed_b + s / kTileRows * steps * kTileSize, steps, g.accumulate || p > 0,
                         rows - r, columns - s, g.c + (i + r) * g.ldc + j + s, g.ldc);
          }
        }
      }
    }
  }
}

}  // namespace plumb

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else

namespace plumb {
// This is called only if UsesAmx().
int64_t TileGemmScratch(int64_t, int64_t, int64_t) { return 0; }
void TileGemm(const GemmArgs&, void*) {}
}  // namespace plumb

#endif
