/* SPDX-License-Identifier: Apache-2.0 */
/* derf: y = weight erf(alpha x + shift) + bias, the Dynamic erf of Chen, Lu, Zhu, Sun & Liu 2025,
 * "Stronger Normalization-Free Transformers", arXiv:2512.10938: dyt with the Gaussian's
 * distribution function, scaled to the range -1 to 1, and another learned number that shifts it.
 * erf'(z) = (2 / sqrt(pi)) exp(-z^2).
 *
 * For double, which serves gradient checks, the functions are those of the C library. */
#include <math.h>

#include "plumb/norm_rows.h"

/* Returns erf, to 6 units in the last place and never beyond 1: a P(a^2) / Q(a^2) for a = |z|, up
 * to where erf is 1 in float. P and Q were fitted for the min relative error (1.9e-8) on 0 < a <=
 * 3.92; all their coefficients are positive, so that no digit is lost. Comparisons are written so
 * that a NaN passes through, here and below. */
PLUMB_ROWS_INLINE float ErfOfFloat(float z, int fused) {
  const float end = 3.92f, size = plumb_abs(z), a = size > end ? end : size, s = a * a;
  float p = 2.0500797290878836e-06f, q = 3.809170448221266e-05f;
  p = PLUMB_FMA(fused, p, s, 0.00028488400857895613f);
  q = PLUMB_FMA(fused, q, s, 0.0011625482002273202f);
  p = PLUMB_FMA(fused, p, s, 0.0037656687200069427f);
  q = PLUMB_FMA(fused, q, s, 0.014969320967793465f);
  p = PLUMB_FMA(fused, p, s, 0.05274888500571251f);
  q = PLUMB_FMA(fused, q, s, 0.11410960555076599f);
  p = PLUMB_FMA(fused, p, s, 0.1904076486825943f);
  q = PLUMB_FMA(fused, q, s, 0.5020771026611328f);
  p = PLUMB_FMA(fused, p, s, 1.1283791065216064f) * a;
  q = PLUMB_FMA(fused, q, s, 1.0f);
  const float t = p / q;
  return copysignf(t > 1.0f ? 1.0f : t, z);
}

/* Returns exp(-s) for s >= 0: 2^-n exp(n ln 2 - s), with n the integer nearest to s / ln 2. The
 * exponential of the remainder, at most ln 2 / 2 in size, is its Taylor sum (the next term is below
 * 1e-8). ln 2 is subtracted in two parts; the first has few enough digits for n times it to be
 * exact. Beyond 80, before subnormal numbers begin, the result is 0. */
PLUMB_ROWS_INLINE float ExpOfMinusFloat(float s, int fused) {
  union {
    float value;
    uint32_t bits;
  } shifted, power;
  shifted.value = s * 1.44269504f + 12582912.0f; /* 3 * 2^22: the integer is in the low bits */
  const float n = shifted.value - 12582912.0f;
  const float r = n * 0.693359375f - s + n * -2.12194440e-4f;
  float e = 1.0f / 5040;
  e = PLUMB_FMA(fused, e, r, 1.0f / 720);
  e = PLUMB_FMA(fused, e, r, 1.0f / 120);
  e = PLUMB_FMA(fused, e, r, 1.0f / 24);
  e = PLUMB_FMA(fused, e, r, 1.0f / 6);
  e = PLUMB_FMA(fused, e, r, 0.5f);
  e = PLUMB_FMA(fused, e, r, 1.0f);
  e = PLUMB_FMA(fused, e, r, 1.0f);
  power.bits = 0x3f800000u - (shifted.bits << 23);
  e *= power.value;
  return s > 80.0f ? 0.0f : e;
}

PLUMB_ROWS_INLINE float SlopeOfFloat(float z, int fused) {
  return 1.12837917f * ExpOfMinusFloat(z * z, fused);
}
PLUMB_ROWS_INLINE double SlopeOfDouble(double z, int fused) {
  return (void)fused, 1.12837916709551257390 * exp(-(z * z));
}
PLUMB_ROWS_INLINE double ErfOfDouble(double z, int fused) { return (void)fused, erf(z); }

#define DYNAMIC_ID "derf"
#define DYNAMIC_NAME "Dynamic erf"
#define DYNAMIC_PAPER                                                                            \
  "y = weight erf(alpha x + shift) + bias, alpha and shift learned numbers; Chen, Lu, Zhu, Sun " \
  "& Liu 2025, arXiv:2512.10938."
#define DYNAMIC_FUNCTION "erf"
#define DYNAMIC_HAS_SHIFT 1
#define DYNAMIC_F(z) _Generic((z), float : ErfOfFloat, double : ErfOfDouble)(z, fused)
#define DYNAMIC_SLOPE(z, f) _Generic((z), float : SlopeOfFloat, double : SlopeOfDouble)(z, fused)
#include "dynamic.h"
