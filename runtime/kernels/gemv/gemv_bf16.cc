// SPDX-License-Identifier: Apache-2.0
// GEMV of bf16 by a bf16 matrix with AVX512_BF16, which multiplies bf16x2. It uses intrinsics,
// since Highway lacks these instructions, and is called only on processors that have them. One
// instruction per cache line of weights keeps as many loads in flight as the processor can track.
// Denormal operands and sums are zero.
#include "runtime/kernels/gemv/gemv.h"

#if defined(__x86_64__)
#if !defined(__clang__)
// gcc 12's own header leaves registers undefined on purpose, and warns about it when it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>

#include "runtime/base/bf16.h"
#include "runtime/kernels/gemv/gemv_streams.h"

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#endif

namespace plumb {
namespace {

constexpr int64_t kTerms = 32;  // number of terms in a vector

inline __m512bh Bf16x2(__m512i v) { return reinterpret_cast<__m512bh>(v); }
inline __m512bh Load(const uint16_t* p) { return Bf16x2(_mm512_loadu_si512(p)); }
inline __m512bh Load(const uint16_t* p, __mmask32 mask) {
  return Bf16x2(_mm512_maskz_loadu_epi16(mask, p));
}

// Returns the horizontal sums of four vectors, each in an order that does not depend on the others.
// Separate sums cost three times as much, which is a tenth of the time of a short row.
inline __m128 SumLanes(__m512 v0, __m512 v1, __m512 v2, __m512 v3) {
  // Within groups of four lanes: 0 1 0 1, 2 3 2 3, then 0 1 2 3.
  const __m512 v01 = _mm512_add_ps(_mm512_unpacklo_ps(v0, v1), _mm512_unpackhi_ps(v0, v1));
  const __m512 v23 = _mm512_add_ps(_mm512_unpacklo_ps(v2, v3), _mm512_unpackhi_ps(v2, v3));
  const __m512d a = _mm512_castps_pd(v01), b = _mm512_castps_pd(v23);
  const __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                   _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Computes rows [i, i + kM) of columns j, j + stride, ... (kR of them) of y.
template <int kM, int kR>
void Tile(const GemvArgs& g, int64_t i, int64_t j, int64_t stride) {
  const int64_t k = g.k;
  const uint16_t* const x = static_cast<const uint16_t*>(g.x) + i * k;
  const uint16_t* w[kR];
  __m512 sum[kM][kR];
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) {
    w[r] = static_cast<const uint16_t*>(g.w) + (j + r * stride) * k;
#pragma GCC unroll 8
    for (int a = 0; a < kM; ++a) sum[a][r] = _mm512_setzero_ps();
  }
  const auto add = [&](const __m512bh(&weights)[kR], const auto& load) {
#pragma GCC unroll 8
    for (int a = 0; a < kM; ++a) {
      const __m512bh row = load(x + a * k);
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) sum[a][r] = _mm512_dpbf16_ps(sum[a][r], row, weights[r]);
    }
  };
  int64_t p = 0;
  const auto multiply = [&](int64_t at) {
#pragma GCC unroll 4
    for (int r = 0; r < kR && kM > 1; ++r) PrefetchStream(w[r] + at);
    __m512bh weights[kR];
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) weights[r] = Load(w[r] + at);
    add(weights, [at](const uint16_t* row) { return Load(row + at); });
  };
  for (; p + kGemvUnroll * kTerms <= k; p += kGemvUnroll * kTerms) {
#pragma GCC unroll 4
    for (int u = 0; u < kGemvUnroll; ++u) multiply(p + u * kTerms);
  }
  for (; p + kTerms <= k; p += kTerms) multiply(p);
  if (p < k) {
    const __mmask32 mask = (__mmask32{1} << (k - p)) - 1;
    __m512bh weights[kR];
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) weights[r] = Load(w[r] + p, mask);
    add(weights, [p, mask](const uint16_t* row) { return Load(row + p, mask); });
  }
#pragma GCC unroll 8
  for (int a = 0; a < kM; ++a) {
    const auto of = [&](int r) { return r < kR ? sum[a][r] : _mm512_setzero_ps(); };
    alignas(16) float totals[4];
    _mm_store_ps(totals, SumLanes(of(0), of(1), of(2), of(3)));
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      const int64_t at = j + r * stride;
      StoreY(g, g.bias == nullptr ? totals[r] : totals[r] + g.bias[at], (i + a) * g.n + at);
    }
  }
}

struct Tiles {
  static constexpr int64_t kMaxRows = 8;
  // Sums and one vector of each row must fit the 32 registers.
  static constexpr int64_t WeightRows(int64_t rows) { return rows <= 6 ? 4 : 2; }

  template <int kM = kMaxRows>
  static void Multiply(const GemvArgs& g, int64_t i, int64_t rows, int64_t j, int64_t weight_rows,
                       int64_t stride) {
    if constexpr (kM > 1) {
      if (rows < kM) return Multiply<kM - 1>(g, i, rows, j, weight_rows, stride);
    }
    if (weight_rows == 4) return Tile<kM, WeightRows(kM)>(g, i, j, stride);
    if (weight_rows == 2) return Tile<kM, 2>(g, i, j, stride);
    Tile<kM, 1>(g, i, j, stride);
  }
};

}  // namespace

GemvFn FastBf16Gemv() { return &MultiplyStreams<Tiles>; }

}  // namespace plumb

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else

#include "runtime/base/check.h"

namespace plumb {
GemvFn FastBf16Gemv() {
  PLUMB_CHECK(false, "call this only if HasFastBf16()");
  return nullptr;
}
}  // namespace plumb

#endif
