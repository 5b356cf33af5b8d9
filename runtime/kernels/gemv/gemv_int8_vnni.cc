// SPDX-License-Identifier: Apache-2.0
// Int8 GEMV with AVX512_VNNI, which multiplies and adds 16-bit pairs in one instruction. It uses
// intrinsics, since Highway lacks them for plumb's targets, and is called only on processors that
// have them. Bit-identical to gemv_int8.cc with AVX-512.
#include "runtime/kernels/gemv/gemv_int8.h"

#if defined(__x86_64__)
#if !defined(__clang__)
// gcc 12's own header leaves registers undefined on purpose, and warns about it when it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "runtime/kernels/gemv/gemv_int8_blocks.h"

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#endif

namespace plumb {
namespace {

struct VnniBlock {
  static constexpr int kMaxRows = 8;

  template <int kM>
  static void Multiply(const Int8GemvArgs& g, int64_t i, int64_t block) {
    // Two independent accumulators hide the latency of the addition.
    constexpr int kChains = kM == 1 ? 2 : 1;
    const int64_t width = g.groups * kInt8Group;
    const int16_t* x = g.x + i * width;
    const float* x_scales = g.x_scales + i * g.groups;
    const int8_t* w = g.w + block * g.groups * kInt8TileElements;
    const float* w_scales = g.w_scales + block * g.groups * kInt8TileRows;
    __m512 sum[kM];
    for (int a = 0; a < kM; ++a) sum[a] = _mm512_setzero_ps();
    for (int64_t group = 0; group < g.groups; ++group) {
      __m512i part[kM][kChains];
#pragma GCC unroll 8
      for (int a = 0; a < kM; ++a) {
#pragma GCC unroll 2
        for (int c = 0; c < kChains; ++c) part[a][c] = _mm512_setzero_si512();
      }
#pragma GCC unroll 32
      for (int64_t l = 0; l < kInt8Group / 2; ++l) {
        const __m512i weights = _mm512_cvtepi8_epi16(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + l * 2 * kInt8TileRows)));
#pragma GCC unroll 8
        for (int a = 0; a < kM; ++a) {
          int32_t both;
          std::memcpy(&both, x + a * width + 2 * l, sizeof(both));
          __m512i& into = part[a][l % kChains];
          into = _mm512_dpwssd_epi32(into, weights, _mm512_set1_epi32(both));
        }
      }
      const __m512 scale = _mm512_loadu_ps(w_scales);
#pragma GCC unroll 8
      for (int a = 0; a < kM; ++a) {
        const __m512i all =
            kChains == 1 ? part[a][0] : _mm512_add_epi32(part[a][0], part[a][kChains - 1]);
        const __m512 scaled =
            _mm512_mul_ps(_mm512_cvtepi32_ps(all), _mm512_set1_ps(x_scales[a * g.groups]));
        sum[a] = _mm512_fmadd_ps(scaled, scale, sum[a]);
      }
      x += kInt8Group;
      x_scales += 1;
      w += kInt8TileElements;
      w_scales += kInt8TileRows;
    }
    for (int a = 0; a < kM; ++a) {
      alignas(64) float totals[kInt8TileRows];
      _mm512_store_ps(totals, sum[a]);
      StoreInt8Sums(g, i + a, block, totals);
    }
  }
};

}  // namespace

Int8GemvFn VnniInt8Gemv() { return &MultiplyInt8Blocks<VnniBlock>; }

}  // namespace plumb

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else

#include "runtime/base/check.h"

namespace plumb {
Int8GemvFn VnniInt8Gemv() {
  PLUMB_CHECK(false, "call this only if HasVnni()");
  return nullptr;
}
}  // namespace plumb

#endif
