/* SPDX-License-Identifier: Apache-2.0 */
/* dyt: y = weight tanh(alpha x) + bias, the Dynamic Tanh of Zhu, Chen, He, LeCun & Liu 2025,
 * "Transformers without Normalization", arXiv:2503.10622. It has no statistics: alpha, one learned
 * number, replaces the scale that a norm would measure, and tanh limits large elements. `bias:
 * false` is DyT in LLaMA. tanh' = 1 - tanh^2.
 *
 * For double, which serves gradient checks, the function is that of the C library. */
#include <math.h>

#include "plumb/norm_rows.h"

/* Returns tanh, to 6 units in the last place and never beyond 1: a P(a^2) / Q(a^2) for a = |z|, and
 * 1 from where tanh is 1 in float. P and Q were fitted for the min relative error (2.1e-8) on 0 < a
 * <= 9.01; all their coefficients are positive, so that no digit is lost. Comparisons are written
 * so that a NaN passes through. */
PLUMB_ROWS_INLINE float TanhOfFloat(float z, int fused) {
  const float end = 9.01f, size = plumb_abs(z), a = size > end ? end : size, s = a * a;
  float p = 1.333686050486449e-08f, q = 7.769288572490041e-07f;
  p = PLUMB_FMA(fused, p, s, 2.0596284230123274e-05f);
  q = PLUMB_FMA(fused, q, s, 0.0003284364065621048f);
  p = PLUMB_FMA(fused, p, s, 0.003494811709970236f);
  q = PLUMB_FMA(fused, q, s, 0.025874029844999313f);
  p = PLUMB_FMA(fused, p, s, 0.13380372524261475f);
  q = PLUMB_FMA(fused, q, s, 0.4671368896961212f);
  p = PLUMB_FMA(fused, p, s, 1.0f) * a;
  q = PLUMB_FMA(fused, q, s, 1.0f);
  const float t = p / q;
  return copysignf(size > end ? 1.0f : t > 1.0f ? 1.0f : t, z);
}
PLUMB_ROWS_INLINE double TanhOfDouble(double z, int fused) { return (void)fused, tanh(z); }

#define DYNAMIC_ID "dyt"
#define DYNAMIC_NAME "Dynamic Tanh"
#define DYNAMIC_PAPER                                                                      \
  "y = weight tanh(alpha x) + bias, alpha one learned number; Zhu, Chen, He, LeCun & Liu " \
  "2025, arXiv:2503.10622."
#define DYNAMIC_FUNCTION "tanh"
#define DYNAMIC_HAS_SHIFT 0
#define DYNAMIC_F(z) _Generic((z), float : TanhOfFloat, double : TanhOfDouble)(z, fused)
#define DYNAMIC_SLOPE(z, f) (1 - (f) * (f))
#include "dynamic.h"
