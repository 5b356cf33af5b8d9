/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives of limit_rms_norm_rows.h for AVX2. */
#define NAME(f) f##Avx2
#define V __m256
#define LANES 8

typedef struct {
  V a, b;
} NAME(Pair);

LIMIT_INLINE V NAME(Set)(float v) { return _mm256_set1_ps(v); }
LIMIT_INLINE V NAME(Load)(const float* at) { return _mm256_loadu_ps(at); }
LIMIT_INLINE void NAME(Store)(float* at, V v) { _mm256_storeu_ps(at, v); }
LIMIT_INLINE void NAME(Stream)(float* at, V v) { _mm256_stream_ps(at, v); }
LIMIT_INLINE V NAME(Add)(V a, V b) { return _mm256_add_ps(a, b); }
LIMIT_INLINE V NAME(Mul)(V a, V b) { return _mm256_mul_ps(a, b); }
LIMIT_INLINE V NAME(Fma)(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
LIMIT_INLINE V NAME(Fnma)(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
LIMIT_INLINE __m256 NAME(Halves)(V v) { return v; }

LIMIT_INLINE NAME(Pair) NAME(Widen)(const plumb_bf16* from) {
  const __m256i v = _mm256_loadu_si256((const __m256i*)(const void*)from);
  const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
  return (NAME(Pair)){_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)),
                      _mm256_castsi256_ps(_mm256_and_si256(v, upper))};
}

/* Rounds to bf16 in the upper halves, to nearest, ties to even; a NaN stays a NaN. */
LIMIT_INLINE __m256i NAME(Round)(V v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(near, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
LIMIT_INLINE void NAME(Narrow)(plumb_bf16* to, V even, V odd, int past) {
  const __m256i v =
      _mm256_blend_epi16(_mm256_srli_epi32(NAME(Round)(even), 16), NAME(Round)(odd), 0xaa);
  if (past) {
    _mm256_stream_si256((__m256i*)(void*)to, v);
  } else {
    _mm256_storeu_si256((__m256i*)(void*)to, v);
  }
}

LIMIT_INLINE void NAME(AddSquares)(V* sum, V* more, const plumb_bf16* from) {
  const NAME(Pair) v = NAME(Widen)(from);
  *sum = NAME(Fma)(v.a, v.a, *sum);
  *more = NAME(Fma)(v.b, v.b, *more);
}

/* Separates a and b into even and odd elements; and the inverse. */
LIMIT_INLINE NAME(Pair) NAME(Apart)(V a, V b) {
  const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
  const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
  return (NAME(Pair)){_mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)),
                      _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))};
}
LIMIT_INLINE NAME(Pair) NAME(Together)(V even, V odd) {
  const V lower = _mm256_unpacklo_ps(even, odd), upper = _mm256_unpackhi_ps(even, odd);
  return (NAME(Pair)){_mm256_permute2f128_ps(lower, upper, 0x20),
                      _mm256_permute2f128_ps(lower, upper, 0x31)};
}

#include "limit_rms_norm_rows.h"

#undef NAME
#undef V
#undef LANES
