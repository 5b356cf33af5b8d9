// What the bf16 cores of attention are made of: packing bf16 into words of two, and a
// register-blocked product by dot products of pairs. For these cores alone; everything in it is
// compiled for AVX-512 with AVX512_BF16, which the processor at hand may lack.
#ifndef PLUMB_RUNTIME_KERNELS_ATTENTION_BF16_TILES_H_
#define PLUMB_RUNTIME_KERNELS_ATTENTION_BF16_TILES_H_

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PLUMB_ATTENTION_BF16 1
#else
#define PLUMB_ATTENTION_BF16 0
#endif

#if PLUMB_ATTENTION_BF16

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/kernels/attention/attention.h"

// GCC 12 takes the undefined registers that its own intrinsics begin with for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace plumb {
namespace attention_bf16 {

#define PLUMB_INLINE inline __attribute__((always_inline))

constexpr int64_t kLanes = 16;
constexpr int64_t kRowTile = 8;
static_assert(kMaxRowTile == kRowTile, "blocks are whole tiles");

PLUMB_INLINE int64_t VectorCount(int64_t elements) { return CeilDiv(elements, kLanes); }

// The first `count` lanes, none when it is negative, all when it is larger than 16.
PLUMB_INLINE __mmask16 FirstLanes(int64_t count) {
  const int64_t n = std::max<int64_t>(0, std::min<int64_t>(kLanes, count));
  return static_cast<__mmask16>((1u << n) - 1u);
}

// 2^x as precise as bf16 has use for (3e-6, minimax), for x below 128; a NaN stays a NaN.
PLUMB_INLINE __m512 Exp2(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-160.0f), x);  // of a NaN and a number, the second operand
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(9.582852994e-3f), _mm512_set1_ps(5.590642474e-2f));
  p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(2.402409861e-1f));
  p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(6.931241934e-1f));
  p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// ln x of a positive x, to about the precision of f32. With x = 2^n m, 3/4 <= m < 3/2, and
// s = (m - 1) / (m + 1): ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| <= 1/5.
PLUMB_INLINE __m512 Log(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  const __m512 n = _mm512_getexp_ps(_mm512_div_ps(x, m));
  const __m512 s = _mm512_div_ps(_mm512_sub_ps(m, one), _mm512_add_ps(m, one));
  const __m512 square = _mm512_mul_ps(s, s);
  __m512 p = _mm512_fmadd_ps(square, _mm512_set1_ps(2.0f / 9), _mm512_set1_ps(2.0f / 7));
  p = _mm512_fmadd_ps(square, p, _mm512_set1_ps(2.0f / 5));
  p = _mm512_fmadd_ps(square, p, _mm512_set1_ps(2.0f / 3));
  p = _mm512_fmadd_ps(square, p, _mm512_set1_ps(2.0f));
  return _mm512_fmadd_ps(n, _mm512_set1_ps(kLn2), _mm512_mul_ps(s, p));
}

PLUMB_INLINE __m512 Widen(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
PLUMB_INLINE __m256i Narrow(__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }

// Two vectors of 16 as one of 32, `low` first.
PLUMB_INLINE __m512i NarrowRow(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
// Words of element i of one row and of the next.
PLUMB_INLINE __m512i NarrowPair(__m512 row, __m512 next) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, NarrowRow(row, next));
}

// to[j] = from[j][0, n) as words of two channels, zero-filled to `width` channels; rows beyond
// `rows` up to a whole tile are zero.
PLUMB_INLINE void PackWords(const uint16_t* from, int64_t stride, int64_t rows, int64_t n,
                            uint32_t* to, int64_t width) {
  const int64_t padded = RoundUp(rows, kRowTile);
  for (int64_t j = 0; j < padded; ++j) {
    for (int64_t e = 0; e < width; e += kLanes) {
      const __mmask16 mask = FirstLanes(j < rows ? n - e : 0);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (j * width + e) / 2),
                          _mm256_maskz_loadu_epi16(mask, from + j * stride + e));
    }
  }
}

// to[j / 2][e] = the word of from[j][e] and from[j + 1][e], zero-filled to `width` channels and
// `padded` rows.
PLUMB_INLINE void PackPairs(const uint16_t* from, int64_t stride, int64_t rows, int64_t padded,
                            int64_t n, uint32_t* to, int64_t width) {
  for (int64_t j = 0; j < padded; j += 2) {
    const uint16_t* row = from + j * stride;
    for (int64_t e = 0; e < width; e += kLanes) {
      const __mmask16 mask = FirstLanes(j < rows ? n - e : 0);
      const __mmask16 next = FirstLanes(j + 1 < rows ? n - e : 0);
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + e));
      const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(next, row + stride + e));
      _mm512_store_si512(to + j / 2 * width + e, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

PLUMB_INLINE __m512i LoadGroups(const uint16_t* const* rows, int64_t e, __mmask8 mask) {
  __m512i v = _mm512_castsi128_si512(_mm_maskz_loadu_epi16(mask, rows[0] + e));
  v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi16(mask, rows[4] + e), 1);
  v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi16(mask, rows[8] + e), 2);
  return _mm512_inserti32x4(v, _mm_maskz_loadu_epi16(mask, rows[12] + e), 3);
}

// to[e / 2][j] = the word of from[j][e] and from[j][e + 1], for j < rows <= kKeyBlock; rows of `to`
// are kKeyBlock apart, and up to a whole vector anything may stand beyond `rows`.
PLUMB_INLINE void PackColumns(const uint16_t* from, int64_t stride, int64_t rows, int64_t n,
                              uint32_t* to) {
  for (int64_t j = 0; j < rows; j += kLanes) {
    const uint16_t* row[kLanes];  // the last one repeats where there are fewer
    for (int64_t i = 0; i < kLanes; ++i) row[i] = from + std::min(j + i, rows - 1) * stride;
    for (int64_t e = 0; e < n; e += 8) {
      const __mmask8 mask = static_cast<__mmask8>(FirstLanes(std::min<int64_t>(8, n - e)));
      const __m512i r0 = LoadGroups(row, e, mask), r1 = LoadGroups(row + 1, e, mask);
      const __m512i r2 = LoadGroups(row + 2, e, mask), r3 = LoadGroups(row + 3, e, mask);
      const __m512i t0 = _mm512_unpacklo_epi32(r0, r1), t1 = _mm512_unpacklo_epi32(r2, r3);
      const __m512i t2 = _mm512_unpackhi_epi32(r0, r1), t3 = _mm512_unpackhi_epi32(r2, r3);
      uint32_t* out = to + e / 2 * kKeyBlock + j;
      _mm512_store_si512(out, _mm512_unpacklo_epi64(t0, t1));
      _mm512_store_si512(out + kKeyBlock, _mm512_unpackhi_epi64(t0, t1));
      _mm512_store_si512(out + 2 * kKeyBlock, _mm512_unpacklo_epi64(t2, t3));
      _mm512_store_si512(out + 3 * kKeyBlock, _mm512_unpackhi_epi64(t2, t3));
    }
  }
}

// to[0, n) = factor * from, rounded.
PLUMB_INLINE void StoreRow(const float* from, float factor, int64_t n, uint16_t* to) {
  const __m512 scale = _mm512_set1_ps(factor);
  for (int64_t e = 0; e < n; e += kLanes) {
    const __m512 x = _mm512_mul_ps(_mm512_load_ps(from + e), scale);
    _mm256_mask_storeu_epi16(to + e, FirstLanes(n - e), Narrow(x));
  }
}

// The left operand of a product: word (r, k) stands at data[r * row_stride + k * k_stride].
struct LeftOperand {
  const uint32_t* data;
  int64_t row_stride;
  int64_t k_stride;
};

// kRowTile rows by kVectors vectors of accumulators.
template <int kVectors>
struct Tile {
  __m512 acc[kRowTile][kVectors];
};

// kRowTile rows of begin + a b over `depth` pairs, where b is [depth, vectors] of words in packed
// rows: begin(r, v) gives where vector v of row r starts, end(tile, v0) takes vectors v0 on.
template <int kVectors, class Begin, class End>
PLUMB_INLINE void MultiplyTile(const LeftOperand& a, const uint32_t* b, int64_t b_stride,
                               int64_t depth, int64_t v0, const Begin& begin, const End& end) {
  Tile<kVectors> tile;
#pragma GCC unroll 8
  for (int r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) tile.acc[r][v] = begin(r, v0 + v);
  }
  const uint32_t* left = a.data;
  const uint32_t* right = b + v0 * kLanes;
  for (int64_t k = 0; k < depth; ++k, left += a.k_stride, right += b_stride) {
    __m512bh operand[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      operand[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(right + v * kLanes));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRowTile; ++r) {
      const __m512bh pair =
          reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(left[r * a.row_stride])));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        tile.acc[r][v] = _mm512_dpbf16_ps(tile.acc[r][v], pair, operand[v]);
      }
    }
  }
  end(tile, v0);
}

template <class Begin, class End>
PLUMB_INLINE void MultiplyRows(const LeftOperand& a, const uint32_t* b, int64_t b_stride,
                               int64_t depth, int64_t vectors, const Begin& begin, const End& end) {
  int64_t v = 0;
  for (; v + 2 <= vectors; v += 2) MultiplyTile<2>(a, b, b_stride, depth, v, begin, end);
  if (v < vectors) MultiplyTile<1>(a, b, b_stride, depth, v, begin, end);
}

struct FromZero {
  PLUMB_INLINE __m512 operator()(int64_t /*r*/, int64_t /*v*/) const { return _mm512_setzero_ps(); }
};
struct FromMemory {
  const float* from;
  int64_t stride;
  PLUMB_INLINE __m512 operator()(int64_t r, int64_t v) const {
    return _mm512_load_ps(from + r * stride + v * kLanes);
  }
};
struct ToMemory {
  float* to;
  int64_t stride;
  template <int kVectors>
  PLUMB_INLINE void operator()(const Tile<kVectors>& tile, int64_t v0) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        _mm512_store_ps(to + r * stride + (v0 + v) * kLanes, tile.acc[r][v]);
      }
    }
  }
};

// To the first `rows` rows of a tensor, n channels of each, rounded; row r times
// factor[r * factor_step].
struct ToRows {
  uint16_t* to;
  int64_t stride;
  int64_t rows;
  int64_t n;
  const float* factor;
  int64_t factor_step;
  template <int kVectors>
  PLUMB_INLINE void operator()(const Tile<kVectors>& tile, int64_t v0) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRowTile; ++r) {
      if (r >= rows) return;
      const __m512 scale = _mm512_set1_ps(factor[r * factor_step]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const int64_t e = (v0 + v) * kLanes;
        _mm256_mask_storeu_epi16(to + r * stride + e, FirstLanes(n - e),
                                 Narrow(_mm512_mul_ps(tile.acc[r][v], scale)));
      }
    }
  }
};

}  // namespace attention_bf16
}  // namespace plumb

#pragma GCC pop_options

#endif  // PLUMB_ATTENTION_BF16
#endif  // PLUMB_RUNTIME_KERNELS_ATTENTION_BF16_TILES_H_
