/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives of limit_rms_norm_rows.h for AVX-512, with its bf16 instructions if NATIVE. */
#define V __m512
#define LANES 16

typedef struct {
  V a, b;
} NAME(Pair);

LIMIT_INLINE V NAME(Set)(float v) { return _mm512_set1_ps(v); }
LIMIT_INLINE V NAME(Load)(const float* at) { return _mm512_loadu_ps(at); }
LIMIT_INLINE void NAME(Store)(float* at, V v) { _mm512_storeu_ps(at, v); }
LIMIT_INLINE void NAME(Stream)(float* at, V v) { _mm512_stream_ps(at, v); }
LIMIT_INLINE V NAME(Add)(V a, V b) { return _mm512_add_ps(a, b); }
LIMIT_INLINE V NAME(Mul)(V a, V b) { return _mm512_mul_ps(a, b); }
LIMIT_INLINE V NAME(Fma)(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
LIMIT_INLINE V NAME(Fnma)(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
LIMIT_INLINE __m256 NAME(Halves)(V v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

LIMIT_INLINE NAME(Pair) NAME(Widen)(const plumb_bf16* from) {
  const __m512i v = _mm512_loadu_si512(from);
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
  return (NAME(Pair)){_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
                      _mm512_castsi512_ps(_mm512_and_si512(v, upper))};
}

#if NATIVE
/* Converts to bf16. The instruction treats denormals as zeros. */
LIMIT_INLINE __m512i NAME(ToBf16)(V even, V odd) {
  static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(order),
                                  (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}
LIMIT_INLINE void NAME(AddSquares)(V* sum, V* more, const plumb_bf16* from) {
  (void)more;
  const __m512bh v = (__m512bh)_mm512_loadu_si512(from);
  *sum = _mm512_dpbf16_ps(*sum, v, v);
}
#else
/* Rounds to bf16 in the upper halves, to nearest, ties to even; a NaN stays a NaN. */
LIMIT_INLINE __m512i NAME(Round)(V v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return _mm512_mask_or_epi32(near, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                              _mm512_set1_epi32(0x400000));
}
LIMIT_INLINE __m512i NAME(ToBf16)(V even, V odd) {
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(NAME(Round)(even), 16), 0xaaaaaaaau,
                               NAME(Round)(odd));
}
LIMIT_INLINE void NAME(AddSquares)(V* sum, V* more, const plumb_bf16* from) {
  const NAME(Pair) v = NAME(Widen)(from);
  *sum = NAME(Fma)(v.a, v.a, *sum);
  *more = NAME(Fma)(v.b, v.b, *more);
}
#endif
LIMIT_INLINE void NAME(Narrow)(plumb_bf16* to, V even, V odd, int past) {
  const __m512i v = NAME(ToBf16)(even, odd);
  if (past) {
    _mm512_stream_si512((__m512i*)(void*)to, v);
  } else {
    _mm512_storeu_si512(to, v);
  }
}

/* Separates a and b into even and odd elements; and the inverse. */
LIMIT_INLINE NAME(Pair) NAME(Apart)(V a, V b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return (NAME(Pair)){_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
}
LIMIT_INLINE NAME(Pair) NAME(Together)(V even, V odd) {
  const __m512i lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i upper = _mm512_add_epi32(lower, _mm512_set1_epi32(8));
  return (NAME(Pair)){_mm512_permutex2var_ps(even, lower, odd),
                      _mm512_permutex2var_ps(even, upper, odd)};
}

#include "limit_rms_norm_rows.h"

#undef V
#undef LANES
