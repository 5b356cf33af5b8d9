/* SPDX-License-Identifier: Apache-2.0 */
/* Row kernels of limit_rms_norm.c for one instruction set. The including file defines its vectors:
 * V is a vector of LANES floats, and NAME(f) the name of f for this set.
 *
 * A loop handles up to four rows together, so that the latencies of the horizontal sums, roots and
 * divisions overlap, and the gain and its gradient are read once. `bf16`, `past` and the number of
 * rows `n` are constants wherever this is inlined. */

/* Loads two vectors of a row: adjacent ones in f32; in bf16 the even and the odd elements, since
 * one shift and one mask extract them. */
LIMIT_INLINE NAME(Pair) NAME(LoadRow)(const void* row, size_t i, int bf16) {
  if (bf16) return NAME(Widen)((const plumb_bf16*)row + i);
  const float* at = (const float*)row + i;
  return (NAME(Pair)){NAME(Load)(at), NAME(Load)(at + LANES)};
}

LIMIT_INLINE void NAME(StoreRow)(void* row, size_t i, V a, V b, int bf16, int past) {
  if (bf16) {
    NAME(Narrow)((plumb_bf16*)row + i, a, b, past);
    return;
  }
  float* at = (float*)row + i;
  if (past) {
    NAME(Stream)(at, a);
    NAME(Stream)(at + LANES, b);
  } else {
    NAME(Store)(at, a);
    NAME(Store)(at + LANES, b);
  }
}

/* Loads two vectors of the gain or its gradient, in the order of a row's pair. */
LIMIT_INLINE NAME(Pair) NAME(LoadGain)(const float* gain, size_t i, int bf16) {
  const V a = NAME(Load)(gain + i), b = NAME(Load)(gain + i + LANES);
  return bf16 ? NAME(Apart)(a, b) : (NAME(Pair)){a, b};
}

LIMIT_INLINE void NAME(StoreGain)(float* gain, size_t i, NAME(Pair) v, int bf16) {
  const NAME(Pair) to = bf16 ? NAME(Together)(v.a, v.b) : v;
  NAME(Store)(gain + i, to.a);
  NAME(Store)(gain + i + LANES, to.b);
}

/* Returns the horizontal sum of each of four vectors. */
LIMIT_INLINE __m128 NAME(Across)(const V* v) {
  const __m256 a = NAME(Halves)(v[0]), b = NAME(Halves)(v[1]);
  const __m256 c = NAME(Halves)(v[2]), d = NAME(Halves)(v[3]);
  const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

LIMIT_INLINE void NAME(ForwardRows)(const plumb_norm_call* call, int64_t row, int n, int bf16,
                                    int past) {
  const size_t dim = call->dim, bytes = bf16 ? 2 : 4;
  const float* gain = (const float*)call->params[0];
  const char* x[4];
  char* y[4];
  V sum[4], more[4], r[4];
  for (int k = 0; k < n; ++k) {
    x[k] = (const char*)call->x + (row + k) * call->x_pitch;
    y[k] = (char*)call->y + (row + k) * call->y_pitch;
  }
  for (int k = 0; k < 4; ++k) sum[k] = more[k] = NAME(Set)(0);
  for (size_t i = 0; i < dim; i += 2 * LANES) {
    for (int k = 0; k < n; ++k) {
      if (bf16) {
        NAME(AddSquares)(&sum[k], &more[k], (const plumb_bf16*)(const void*)x[k] + i);
      } else {
        const NAME(Pair) v = NAME(LoadRow)(x[k], i, bf16);
        sum[k] = NAME(Fma)(v.a, v.a, sum[k]);
        more[k] = NAME(Fma)(v.b, v.b, more[k]);
      }
    }
  }
  for (int k = 0; k < n; ++k) sum[k] = NAME(Add)(sum[k], more[k]);
  const __m128 mean = _mm_mul_ps(NAME(Across)(sum), _mm_set1_ps(1 / (float)dim));
  const __m128 root = _mm_sqrt_ps(_mm_add_ps(mean, _mm_set1_ps(1e-5f)));
  float factor[4];
  _mm_storeu_ps(factor, _mm_div_ps(_mm_set1_ps(1), root));
  for (int k = 0; k < n; ++k) {
    r[k] = NAME(Set)(factor[k]);
    if (call->saved != NULL) *PLUMB_ROW(float, call->saved, call->saved_pitch, row + k) = factor[k];
  }
  for (size_t i = 0; i < dim; i += 2 * LANES) {
    const NAME(Pair) g = NAME(LoadGain)(gain, i, bf16);
    for (int k = 0; k < n; ++k) {
      if (past) {
        const char* later = x[k] + 2 * call->x_pitch + i * bytes;
        for (size_t at = 0; at < 2 * LANES * bytes; at += 64) __builtin_prefetch(later + at);
      }
      const NAME(Pair) v = NAME(LoadRow)(x[k], i, bf16);
      NAME(StoreRow)
      (y[k], i, NAME(Mul)(NAME(Mul)(v.a, r[k]), g.a), NAME(Mul)(NAME(Mul)(v.b, r[k]), g.b), bf16,
       past);
    }
  }
}

/* Computes dx = r (dy g - x r m) with m the mean of dy g x r; dgain += dy x r. */
LIMIT_INLINE void NAME(BackwardRows)(const plumb_norm_call* call, int64_t row, int n, int bf16,
                                     int past) {
  const size_t dim = call->dim;
  const float* gain = (const float*)call->params[0];
  float* dgain = (float*)call->dparams[0];
  const char *x[4], *dy[4];
  char* dx[4];
  V sum[4], more[4], r[4], c[4];
  for (int k = 0; k < n; ++k) {
    x[k] = (const char*)call->x + (row + k) * call->x_pitch;
    dy[k] = (const char*)call->dy + (row + k) * call->dy_pitch;
    dx[k] = (char*)call->dx + (row + k) * call->dx_pitch;
  }
  for (int k = 0; k < 4; ++k) sum[k] = more[k] = NAME(Set)(0);
  for (size_t i = 0; i < dim; i += 2 * LANES) {
    const NAME(Pair) g = NAME(LoadGain)(gain, i, bf16);
    for (int k = 0; k < n; ++k) {
      const NAME(Pair) v = NAME(LoadRow)(x[k], i, bf16), u = NAME(LoadRow)(dy[k], i, bf16);
      sum[k] = NAME(Fma)(NAME(Mul)(u.a, g.a), v.a, sum[k]);
      more[k] = NAME(Fma)(NAME(Mul)(u.b, g.b), v.b, more[k]);
    }
  }
  for (int k = 0; k < n; ++k) sum[k] = NAME(Add)(sum[k], more[k]);
  float mean[4]; /* mean of dy g x */
  _mm_storeu_ps(mean, _mm_mul_ps(NAME(Across)(sum), _mm_set1_ps(1 / (float)dim)));
  for (int k = 0; k < n; ++k) {
    const float factor = *PLUMB_CONST_ROW(float, call->saved, call->saved_pitch, row + k);
    r[k] = NAME(Set)(factor);
    c[k] = NAME(Set)(factor * factor * factor * mean[k]);
  }
  for (size_t i = 0; i < dim; i += 2 * LANES) {
    const NAME(Pair) g = NAME(LoadGain)(gain, i, bf16);
    NAME(Pair) dg = NAME(LoadGain)(dgain, i, bf16);
    for (int k = 0; k < n; ++k) {
      const NAME(Pair) v = NAME(LoadRow)(x[k], i, bf16), u = NAME(LoadRow)(dy[k], i, bf16);
      const V a = NAME(Mul)(u.a, r[k]), b = NAME(Mul)(u.b, r[k]);
      dg.a = NAME(Fma)(a, v.a, dg.a);
      dg.b = NAME(Fma)(b, v.b, dg.b);
      NAME(StoreRow)
      (dx[k], i, NAME(Fnma)(c[k], v.a, NAME(Mul)(a, g.a)), NAME(Fnma)(c[k], v.b, NAME(Mul)(b, g.b)),
       bf16, past);
    }
    NAME(StoreGain)(dgain, i, dg, bf16);
  }
}

/* Data that bypasses the caches is in memory, where single rows in sequence are fastest. */
#define LIMIT_RANGE_(ROWS, BF16, PAST)                                   \
  do {                                                                   \
    if (!(PAST)) {                                                       \
      for (; row + 4 <= r1; row += 4) NAME(ROWS)(call, row, 4, BF16, 0); \
    }                                                                    \
    for (; row < r1; ++row) NAME(ROWS)(call, row, 1, BF16, PAST);        \
  } while (0)
static void NAME(Forward)(const plumb_norm_call* call, int64_t row, int64_t r1, int past) {
  if (call->dtype == PLUMB_DTYPE_BF16) {
    if (past) {
      LIMIT_RANGE_(ForwardRows, 1, 1);
    } else {
      LIMIT_RANGE_(ForwardRows, 1, 0);
    }
  } else if (past) {
    LIMIT_RANGE_(ForwardRows, 0, 1);
  } else {
    LIMIT_RANGE_(ForwardRows, 0, 0);
  }
}
static void NAME(Backward)(const plumb_norm_call* call, int64_t row, int64_t r1, int past) {
  if (call->dtype == PLUMB_DTYPE_BF16) {
    if (past) {
      LIMIT_RANGE_(BackwardRows, 1, 1);
    } else {
      LIMIT_RANGE_(BackwardRows, 1, 0);
    }
  } else if (past) {
    LIMIT_RANGE_(BackwardRows, 0, 1);
  } else {
    LIMIT_RANGE_(BackwardRows, 0, 0);
  }
}
#undef LIMIT_RANGE_
