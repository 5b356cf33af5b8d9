// SPDX-License-Identifier: Apache-2.0
// GEMV by AMX, which multiplies tiles of 16 rows of x and 16 rows of w: bf16 by a bf16 matrix, and
// 16-bit integers by an int8 matrix. It uses intrinsics, since Highway lacks them, and is called
// only on processors that have them. Denormal operands and sums of bf16 are zero. Int8 is
// bit-identical to gemv_int8.cc.
#include <algorithm>
#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/gemv/gemv.h"
#include "runtime/kernels/gemv/gemv_int8.h"

#if defined(__x86_64__)
#if !defined(__clang__)
// gcc 12's own header leaves registers undefined on purpose, and warns about it when it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(                                                                 \
    __attribute__((                                                                           \
        target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,amx-int8"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,amx-int8")
#endif

#include "runtime/kernels/simd/tile_registers-inl.h"

namespace plumb {
namespace {

constexpr int64_t kTileTerms = 32;  // bf16 terms of a row of a tile

// Number of rows of x in a tile.
int64_t TileHeight(int64_t m) { return CeilDiv(m, CeilDiv(m, kTileRows)); }

// Prefetches a KiB.
inline void PrefetchTile(const void* from) {
#pragma GCC unroll 16
  for (int64_t line = 0; line < kTileRows; ++line) {
    _mm_prefetch(static_cast<const char*>(from) + line * kTileBytes, _MM_HINT_T1);
  }
}

// Multiplies rows j + r * stride of w, r < 16, by kTiles tiles of x, which PackAmxRows packed. The
// rows of w are the left operand, which needs no packing.
template <int kTiles>
void MultiplyTile(const GemvArgs& g, int64_t j, int64_t stride,
                  float (*sums)[kTileRows][kTileRows]) {
  const int64_t k = g.k, pitch = k / 2 * kTileBytes;  // bytes of a tile of x
  const uint16_t* const w = static_cast<const uint16_t*>(g.w) + j * k;
  const char* x = static_cast<const char*>(g.x);
  _tile_zero(0);
  if constexpr (kTiles > 1) _tile_zero(1);
  if constexpr (kTiles > 2) _tile_zero(2);
  if constexpr (kTiles > 3) _tile_zero(3);
  for (int64_t p = 0; p < k; p += kTileTerms, x += kTileRows * kTileBytes) {
    _tile_loadd(4, w + p, stride * k * 2);
    _tile_loadd(5, x, kTileBytes);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kTiles > 1) {
      _tile_loadd(6, x + pitch, kTileBytes);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(5, x + 2 * pitch, kTileBytes);
      _tile_dpbf16ps(2, 4, 5);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(6, x + 3 * pitch, kTileBytes);
      _tile_dpbf16ps(3, 4, 6);
    }
  }
  _tile_stored(0, sums[0], kTileBytes);
  if constexpr (kTiles > 1) _tile_stored(1, sums[1], kTileBytes);
  if constexpr (kTiles > 2) _tile_stored(2, sums[2], kTileBytes);
  if constexpr (kTiles > 3) _tile_stored(3, sums[3], kTileBytes);
}

// Stores columns [j, j + columns) of y but the first `skip`, plus the bias. The sums of a column by
// a tile of x are contiguous, and those of the next column `pitch` after them.
void StoreColumns(const GemvArgs& g, const float* sums, int64_t pitch, int64_t columns,
                  int64_t skip, int64_t j) {
  static const TransposeFn transpose = SelectTranspose();
  const auto mask = static_cast<__mmask16>((1 << columns) - (1 << skip));
  const __m512 bias =
      g.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, g.bias + j);
  for (int64_t first = 0; first < g.m; first += kTileRows, sums += kTileRows * kTileRows) {
    const int64_t rows = std::min(kTileRows, g.m - first);
    alignas(64) float transposed[kTileRows][kTileRows];
    transpose(sums, pitch, columns, rows, kTileRows, transposed[0]);
    for (int64_t i = 0; i < rows; ++i) {
      const __m512 values = _mm512_add_ps(_mm512_load_ps(transposed[i]), bias);
      const int64_t at = (first + i) * g.n + j;
      if (g.out == DType::kBF16) {
        _mm256_mask_storeu_epi16(static_cast<uint16_t*>(g.y) + at, mask,
                                 reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
      } else {
        _mm512_mask_storeu_ps(static_cast<float*>(g.y) + at, mask, values);
      }
    }
  }
}

// Implements GemvFn for up to kTiles tiles of x.
template <int kTiles = 4>
void MultiplyTiles(const GemvArgs& g, int64_t begin, int64_t end) {
  if constexpr (kTiles > 1) {
    if (g.m <= (kTiles - 1) * kTileRows) return MultiplyTiles<kTiles - 1>(g, begin, end);
  }
  const int64_t stride = g.n / kAmxStreams, rest = g.n % kAmxStreams;
  // Sums of 16 columns of each stream, so that they are stored as vectors.
  alignas(64) float sums[kTileRows][kTiles][kTileRows][kTileRows];
  for (int64_t j = begin; j < end; j += kTileRows) {
    const int64_t columns = std::min(kTileRows, end - j);
    for (int64_t c = 0; c < columns; ++c) MultiplyTile<kTiles>(g, j + c, stride, sums[c]);
    for (int64_t r = 0; r < kAmxStreams; ++r) {
      StoreColumns(g, sums[0][0][r], sums[1][0][r] - sums[0][0][r], columns, 0, j + r * stride);
    }
  }
  if (end == stride && rest > 0) {
    const int64_t j = g.n - kTileRows;
    MultiplyTile<kTiles>(g, j, 1, sums[0]);
    StoreColumns(g, sums[0][0][0], kTileRows, kTileRows, kTileRows - rest, j);
  }
}

// Implements GemvFn.
void MultiplyAmxBf16(const GemvArgs& g, int64_t begin, int64_t end) {
  const TileRegisters registers(kTileRows, kTileBytes);
  MultiplyTiles(g, begin, end);
}

struct AmxInt8Block {
  static constexpr int kMaxRows = kTileRows;

  template <int kM>
  static void Multiply(const Int8GemvArgs& g, int64_t i, int64_t block) {
    const int64_t groups = g.groups, pitch = groups * 2 * kInt8Group;  // bytes of a row of x
    const char* const x = reinterpret_cast<const char*>(g.x) + i * pitch;
    const int8_t* const w = g.w + block * groups * kInt8TileElements;
    const float* const w_scales = g.w_scales + block * groups * kInt8TileRows;
    const int64_t passes = CeilDiv(g.m, kTileRows), pass = i / TileHeight(g.m);
    const int64_t ahead = (passes == 1 ? 8 : groups) * kInt8TileElements;
    alignas(64) float totals[kInt8TileRows];
    StartInt8Sums(g, block, totals);
    __m512 sum[kM];
#pragma GCC unroll 16
    for (int a = 0; a < kM; ++a) sum[a] = _mm512_load_ps(totals);

    // Sums of the high and low bytes of x, in tiles 0 and 1, or 2 and 3.
    struct Sums {
      alignas(64) int32_t high[kTileRows][kInt8TileRows], low[kTileRows][kInt8TileRows];
    } even, odd;
    const auto load = [&](int64_t group) {
      const int8_t* const from = w + group * kInt8TileElements;
      if (group % passes == pass) PrefetchTile(from + ahead);
      _tile_loadd(4, from, kTileBytes);
      _tile_loadd(5, x + group * 2 * kInt8Group, pitch);
      _tile_loadd(6, x + group * 2 * kInt8Group + kInt8Group, pitch);
    };
    const auto multiply_even = [&](int64_t group) {
      load(group);
      _tile_zero(0);
      _tile_zero(1);
      _tile_dpbssd(0, 5, 4);
      _tile_dpbusd(1, 6, 4);
    };
    const auto multiply_odd = [&](int64_t group) {
      load(group);
      _tile_zero(2);
      _tile_zero(3);
      _tile_dpbssd(2, 5, 4);
      _tile_dpbusd(3, 6, 4);
    };
    const auto add = [&](int64_t group, const Sums& sums) {
      const __m512 scale = _mm512_loadu_ps(w_scales + group * kInt8TileRows);
      const float* const x_scales = g.x_scales + group * g.x_pitch + i;
#pragma GCC unroll 16
      for (int a = 0; a < kM; ++a) {
        const __m512i high = _mm512_slli_epi32(_mm512_load_si512(sums.high[a]), 8);
        const __m512i all = _mm512_add_epi32(high, _mm512_load_si512(sums.low[a]));
        const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(all), _mm512_set1_ps(x_scales[a]));
        sum[a] = _mm512_fmadd_ps(scaled, scale, sum[a]);
      }
    };
    // Sums are added one group after they were stored, which is when they are in the cache, and
    // while the next ones are computed.
    multiply_even(0);
    for (int64_t group = 0; group < groups; group += 2) {
      if (group + 1 < groups) multiply_odd(group + 1);
      _tile_stored(0, even.high, kTileBytes);
      _tile_stored(1, even.low, kTileBytes);
      if (group > 0) add(group - 1, odd);
      if (group + 2 < groups) multiply_even(group + 2);
      if (group + 1 < groups) {
        _tile_stored(2, odd.high, kTileBytes);
        _tile_stored(3, odd.low, kTileBytes);
      }
      add(group, even);
    }
    if (groups % 2 == 0) add(groups - 1, odd);
    for (int a = 0; a < kM; ++a) {
      _mm512_store_ps(totals, sum[a]);
      StoreInt8Sums(g, i + a, block, totals);
    }
  }
};

// Implements Int8GemvFn. x is split by SplitInt16.
void MultiplyAmxInt8(const Int8GemvArgs& g, int64_t begin, int64_t end) {
  const TileRegisters registers(TileHeight(g.m), kTileBytes);
  MultiplyInt8Blocks<AmxInt8Block>(g, begin, end);
}

// Returns the low bytes of four 16-bit lanes, whose high bytes are 0, in the order 0, 2, 1, 3.
inline __m256i LowBytes(__m512i v) {
  return _mm512_cvtepi64_epi32(_mm512_or_si512(v, _mm512_srli_epi64(v, 24)));
}

}  // namespace

GemvFn AmxBf16Gemv() { return &MultiplyAmxBf16; }
Int8GemvFn AmxInt8Gemv() { return &MultiplyAmxInt8; }

int64_t PackedAmxBytes(int64_t m, int64_t k) { return CeilDiv(m, kTileRows) * k / 2 * kTileBytes; }

void PackAmxRows(const uint16_t* x, int64_t m, int64_t k, int threads, void* to) {
  static const TransposeFn transpose = SelectTranspose();
  const int64_t pairs = k / 2;
  ParallelFor(CeilDiv(m, kTileRows), threads, [&](int64_t tile) {
    const int64_t first = tile * kTileRows;
    transpose(reinterpret_cast<const float*>(x + first * k), pairs, std::min(kTileRows, m - first),
              pairs, kTileRows, static_cast<float*>(to) + first * pairs);
  });
}

void SplitInt16(int16_t* x, int64_t groups) {
  const __m512i low = _mm512_set1_epi16(0xff);
  for (int64_t group = 0; group < groups; ++group, x += kInt8Group) {
    const __m512i v[] = {_mm512_loadu_si512(x), _mm512_loadu_si512(x + kInt8Group / 2)};
    for (int half = 0; half < 2; ++half) {
      auto* const high_bytes = reinterpret_cast<__m256i*>(x) + half;
      _mm256_storeu_si256(high_bytes, LowBytes(_mm512_srli_epi16(v[half], 8)));
      _mm256_storeu_si256(high_bytes + 2, LowBytes(_mm512_and_si512(v[half], low)));
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
// These are called only if HasAmx().
GemvFn AmxBf16Gemv() { return nullptr; }
Int8GemvFn AmxInt8Gemv() { return nullptr; }
int64_t PackedAmxBytes(int64_t, int64_t) { return 0; }
void PackAmxRows(const uint16_t*, int64_t, int64_t, int, void*) {}
void SplitInt16(int16_t*, int64_t) {}
}  // namespace plumb

#endif
