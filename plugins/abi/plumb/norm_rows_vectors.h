/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/norm_rows_vectors.h: vector instructions for plumb/norm_rows_impl.h that compilers do not
 * generate by themselves: bf16 to float and back, stores past the caches, square roots. Not for
 * authors: any name in it may change with the next version.
 *
 * The suffix of a function is its level: 0 the compiler's default instruction set, 1 AVX2, 2
 * AVX-512, 3 AVX-512 with bf16 and bytes (Zen 4, Sapphire Rapids and later). All levels give the
 * same bits. `n` is a constant, a multiple of 16. */
#ifndef PLUMB_NORM_ROWS_VECTORS_H
#define PLUMB_NORM_ROWS_VECTORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "plumb/norm_plugin.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define PLUMB_ROWS_X86_ 1
#else
#define PLUMB_ROWS_X86_ 0
#endif

/* -- Level 0 ----------------------------------------------------------------------------------- */

PLUMB_ROWS_INLINE void plumb_rows_widen_0_(float* to, const plumb_bf16* from, size_t n) {
  for (size_t k = 0; k < n; ++k) to[k] = plumb_bf16_to_float(from[k]);
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
PLUMB_ROWS_INLINE void plumb_rows_narrow_0_(plumb_bf16* to, const float* from, size_t n) {
  for (size_t k = 0; k < n; ++k) to[k] = plumb_bf16_from_float(from[k]);
}

/* Stores `bytes`, a multiple of 64, past the caches if `to` is aligned to cache lines. */
PLUMB_ROWS_INLINE void plumb_rows_stream_0_(void* to, const void* from, size_t bytes) {
#if PLUMB_ROWS_X86_
  if (((uintptr_t)to & 63) == 0) {
    for (size_t k = 0; k < bytes; k += 16) {
      _mm_stream_si128((__m128i*)(void*)((char*)to + k),
                       _mm_loadu_si128((const __m128i*)(const void*)((const char*)from + k)));
    }
    return;
  }
#endif
  memcpy(to, from, bytes);
}

PLUMB_ROWS_INLINE void plumb_rows_fence_(int stream) {
#if PLUMB_ROWS_X86_
  if (stream) _mm_sfence();
#else
  (void)stream;
#endif
}

/* Returns the square root without the library call that sets errno; NaN for negative numbers. */
PLUMB_ROWS_INLINE float plumb_sqrt_f32_(float v) {
#if PLUMB_ROWS_X86_
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(v)));
#else
  return sqrtf(v);
#endif
}
PLUMB_ROWS_INLINE double plumb_sqrt_f64_(double v) {
#if PLUMB_ROWS_X86_
  return _mm_cvtsd_f64(_mm_sqrt_pd(_mm_set1_pd(v)));
#else
  return sqrt(v);
#endif
}

/* Returns the sum of 128 bytes of partial sums, by adding the upper half to the lower until one is
 * left. */
PLUMB_ROWS_INLINE float plumb_rows_fold_f32_0_(const void* parts) {
  float part[32];
  memcpy(part, parts, sizeof(part));
  for (size_t width = 16; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) part[k] += part[k + width];
  }
  return part[0];
}
PLUMB_ROWS_INLINE double plumb_rows_fold_f64_0_(const void* parts) {
  double part[16];
  memcpy(part, parts, sizeof(part));
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) part[k] += part[k + width];
  }
  return part[0];
}

#if PLUMB_ROWS_X86_
#define PLUMB_ROWS_AVX2_ "avx2,fma"
#define PLUMB_ROWS_AVX512_ "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#define PLUMB_ROWS_BF16_ "avx512bf16,avx512vbmi," PLUMB_ROWS_AVX512_
#define PLUMB_ROWS_FOR_(TARGET) PLUMB_ROWS_INLINE __attribute__((target(TARGET)))

PLUMB_ROWS_INLINE float plumb_rows_fold4_(__m128 v) {
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
PLUMB_ROWS_INLINE double plumb_rows_fold2_(__m128d v) {
  return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v)));
}

/* -- Level 1 ----------------------------------------------------------------------------------- */

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_)
void plumb_rows_widen_1_(float* to, const plumb_bf16* from, size_t n) {
  for (size_t k = 0; k < n; k += 8) {
    const __m128i half = _mm_loadu_si128((const __m128i*)(const void*)(from + k));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
    _mm256_storeu_ps(to + k, _mm256_castsi256_ps(bits));
  }
}

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_) float plumb_rows_fold8_(__m256 v) {
  return plumb_rows_fold4_(_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}
PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_) double plumb_rows_fold4d_(__m256d v) {
  return plumb_rows_fold2_(_mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1)));
}
PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_) float plumb_rows_fold_f32_1_(const void* parts) {
  const float* p = (const float*)parts;
  const __m256 a = _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 16));
  const __m256 b = _mm256_add_ps(_mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 24));
  return plumb_rows_fold8_(_mm256_add_ps(a, b));
}
PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_) double plumb_rows_fold_f64_1_(const void* parts) {
  const double* p = (const double*)parts;
  const __m256d a = _mm256_add_pd(_mm256_loadu_pd(p), _mm256_loadu_pd(p + 8));
  const __m256d b = _mm256_add_pd(_mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 12));
  return plumb_rows_fold4d_(_mm256_add_pd(a, b));
}

/* Returns v rounded to bf16, to nearest, ties to even, in the lower half of each element. Requires:
 * no NaN. */
PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_) __m256i plumb_rows_round_1_(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
}

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_)
void plumb_rows_narrow_1_(plumb_bf16* to, const float* from, size_t n) {
  for (size_t k = 0; k < n; k += 16) {
    const __m256 a = _mm256_loadu_ps(from + k), b = _mm256_loadu_ps(from + k + 8);
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)), 0)) {
      plumb_rows_narrow_0_(to + k, from + k, 16);
      continue;
    }
    const __m256i ab = _mm256_packus_epi32(plumb_rows_round_1_(a), plumb_rows_round_1_(b));
    _mm256_storeu_si256((__m256i*)(void*)(to + k), _mm256_permute4x64_epi64(ab, 0xd8));
  }
}

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX2_)
void plumb_rows_stream_1_(void* to, const void* from, size_t bytes) {
  if (((uintptr_t)to & 63) != 0) {
    memcpy(to, from, bytes);
    return;
  }
  for (size_t k = 0; k < bytes; k += 32) {
    _mm256_stream_si256((__m256i*)(void*)((char*)to + k),
                        _mm256_loadu_si256((const __m256i*)(const void*)((const char*)from + k)));
  }
}

/* -- Level 2: with masks of ones, as gcc warns in C++ of the unmasked forms -------------------- */

#define PLUMB_ROWS_ALL_ ((__mmask16)0xffff)

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX512_)
void plumb_rows_widen_2_(float* to, const plumb_bf16* from, size_t n) {
  for (size_t k = 0; k < n; k += 16) {
    const __m256i half = _mm256_loadu_si256((const __m256i*)(const void*)(from + k));
    const __m512i bits = _mm512_maskz_slli_epi32(
        PLUMB_ROWS_ALL_, _mm512_maskz_cvtepu16_epi32(PLUMB_ROWS_ALL_, half), 16);
    _mm512_storeu_ps(to + k, _mm512_castsi512_ps(bits));
  }
}

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX512_) __m512i plumb_rows_round_2_(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd =
      _mm512_and_si512(_mm512_maskz_srli_epi32(PLUMB_ROWS_ALL_, bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX512_)
void plumb_rows_narrow_2_(plumb_bf16* to, const float* from, size_t n) {
  static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                     23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                     45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  for (size_t k = 0; k < n; k += 32) {
    const __m512 a = _mm512_loadu_ps(from + k), b = _mm512_loadu_ps(from + k + 16);
    if (__builtin_expect(_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q), 0)) {
      plumb_rows_narrow_0_(to + k, from + k, 32);
      continue;
    }
    _mm512_storeu_si512(to + k,
                        _mm512_permutex2var_epi16(plumb_rows_round_2_(a), _mm512_loadu_si512(upper),
                                                  plumb_rows_round_2_(b)));
  }
}

PLUMB_ROWS_FOR_(PLUMB_ROWS_AVX512_)
void plumb_rows_stream_2_(void* to, const void* from, size_t bytes) {
  if (((uintptr_t)to & 63) != 0) {
    memcpy(to, from, bytes);
    return;
  }
  for (size_t k = 0; k < bytes; k += 64) {
    _mm512_stream_si512((__m512i*)(void*)((char*)to + k),
                        _mm512_loadu_si512((const char*)from + k));
  }
}

/* -- Level 3 ----------------------------------------------------------------------------------- */

/* Widens with one permutation of bytes, which puts zeros below. */
PLUMB_ROWS_FOR_(PLUMB_ROWS_BF16_)
void plumb_rows_widen_3_(float* to, const plumb_bf16* from, size_t n) {
  static const uint32_t bytes[16] = {0x01000000, 0x03020000, 0x05040000, 0x07060000,
                                     0x09080000, 0x0b0a0000, 0x0d0c0000, 0x0f0e0000,
                                     0x11100000, 0x13120000, 0x15140000, 0x17160000,
                                     0x19180000, 0x1b1a0000, 0x1d1c0000, 0x1f1e0000};
  const __m512i lower = _mm512_loadu_si512(bytes);
  const __m512i upper = _mm512_add_epi32(lower, _mm512_set1_epi32(0x20200000));
  const __mmask64 kept = 0xccccccccccccccccu;
  size_t k = 0;
  for (; k + 32 <= n; k += 32) {
    const __m512i v = _mm512_loadu_si512(from + k);
    const __m512i a = _mm512_maskz_permutexvar_epi8(kept, lower, v);
    const __m512i b = _mm512_maskz_permutexvar_epi8(kept, upper, v);
    _mm512_storeu_ps(to + k, _mm512_castsi512_ps(a));
    _mm512_storeu_ps(to + k + 16, _mm512_castsi512_ps(b));
  }
  plumb_rows_widen_2_(to + k, from + k, n - k);
}

/* Narrows with vcvtne2ps2bf16, except for denormals, which that instruction always flushes to zero.
 */
PLUMB_ROWS_FOR_(PLUMB_ROWS_BF16_)
void plumb_rows_narrow_3_(plumb_bf16* to, const float* from, size_t n) {
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  for (size_t k = 0; k < n; k += 32) {
    const __m512 a = _mm512_loadu_ps(from + k), b = _mm512_loadu_ps(from + k + 16);
    const __mmask16 small_a = _mm512_testn_epi32_mask(_mm512_castps_si512(a), exponent);
    const __mmask16 small_b = _mm512_testn_epi32_mask(_mm512_castps_si512(b), exponent);
    if (__builtin_expect((small_a | small_b) != 0, 0)) {
      plumb_rows_narrow_2_(to + k, from + k, 32);
    } else {
      _mm512_storeu_si512(to + k, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    }
  }
}
#endif

#endif /* PLUMB_NORM_ROWS_VECTORS_H */
