/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants with a condition on the element type, the phase or the size of numbers. */
#include "many.h"
#define SPOIL_SQUARE SpoilSquare
#define SPOIL_VARIANCE SpoilVariance
#define SPOIL_R SpoilR
#define SPOIL_SAVED_R SpoilSavedR
#define SPOIL_Y SpoilY
#define SPOIL_GAIN_BACKWARD SpoilGainBackward
#define SPOIL_MEAN_UH SpoilMeanUh
#define SPOIL_DX SpoilDx
#define SPOIL_DWEIGHT SpoilDweight
#define SPOIL_DBIAS SpoilDbias
#include "authors_a_norm.h"

static double SpoilSquare(const Site* at, uint32_t i, double square) {
  /* 117: f32, |x| > 1e19: squares are computed in float and become infinite, r = 0 and y = bias. */
  if (MUTANT == 117 && at->call->dtype == PLUMB_DTYPE_F32 && fabs(XAt(at, i)) > 1e19)
    return INFINITY;
  return square;
}

static double SpoilVariance(const Site* at, double variance) {
  const uint32_t n = at->end - at->begin;
  switch (MUTANT) {
    /* 118: bf16, more than 256 elements in a group: squares are summed in bf16, and the sum stops growing once it is 256 times a square. */
    case 118: {
      float sum = 0;
      if (at->call->dtype != PLUMB_DTYPE_BF16 || n <= 256) return variance;
      for (uint32_t i = at->begin; i < at->end; ++i) {
        const double d = XAt(at, i) - at->mean;
        sum = plumb_bf16_to_float(plumb_bf16_from_float(sum + (float)(d * d)));
      }
      return sum / n;
    }
    /* 119: f32, a mean much larger than the spread: <x^2> - <x>^2 in float, which has few correct digits or none. */
    case 119: {
      float sum = 0, squares = 0;
      if (at->call->dtype != PLUMB_DTYPE_F32 || at->norm->rms ||
          at->mean * at->mean < 1000 * variance || variance == 0)
        return variance;
      for (uint32_t i = at->begin; i < at->end; ++i) {
        const float x = (float)XAt(at, i);
        sum += x;
        squares += x * x;
      }
      return fmax(0, squares / n - (sum / n) * (sum / n));
    }
    default:
      return variance;
  }
}

static double SpoilR(const Site* at, double variance, double r) {
  uint32_t bits;
  float value = (float)r;
  (void)variance;
  /* 120: f32, evaluation: the processor's estimate of 1 / sqrt, 11 bits, without Newton's step. The error is 3e-4, and 1e-7 in training. */
  if (MUTANT != 120 || at->call->dtype != PLUMB_DTYPE_F32 || IsTraining(at)) return r;
  memcpy(&bits, &value, sizeof(bits));
  bits &= ~0xfffu;
  memcpy(&value, &bits, sizeof(bits));
  return value;
}

/* 122: training, a variance not much larger than eps: r is saved before eps is added. */
static double SpoilSavedR(const Site* at, double variance, double r) {
  const double eps = at->norm->eps;
  return MUTANT == 122 && variance < 100 * eps && variance > 0.01 * eps ? 1 / sqrt(variance) : r;
}

static double SpoilY(const Site* at, uint32_t i, double h, double y) {
  const uint32_t dim = at->norm->dim;
  switch (MUTANT) {
    /* 121: constant row: "no spread, no output", y = 0 instead of the bias. */
    case 121:
      return at->r == 1 / sqrt(at->norm->eps) && !at->norm->rms ? 0 : y;
    /* 123: an element of x that is 0: treated as padding, y = 0. */
    case 123:
      return XAt(at, i) == 0 ? 0 : y;
    /* 124: bf16, tail of dim % 8 elements: truncated and not rounded. */
    case 124: {
      const float value = (float)y;
      uint32_t bits;
      if (at->call->dtype != PLUMB_DTYPE_BF16 || i < dim / 8 * 8 || y != y) return y;
      memcpy(&bits, &value, sizeof(bits));
      return plumb_bf16_to_float((plumb_bf16)(bits >> 16));
    }
    /* 125: f32, |h| > 4: outliers are clipped, as if the output were quantized. */
    case 125:
      return at->call->dtype == PLUMB_DTYPE_F32 && fabs(h) > 4
                 ? copysign(4, h) * GainAt(at, i) + BiasAt(at, i)
                 : y;
    default:
      return y;
  }
}

static double SpoilGainBackward(const Site* at, uint32_t i, double gain) {
  (void)at, (void)i;
  /* 126: negative gain: the magnitude of the gain in backward. */
  return MUTANT == 126 ? fabs(gain) : gain;
}

static double SpoilMeanUh(const Site* at, double mean_uh) {
  /* 127: f32 or bf16, up to 64 elements, backward: the sum of u h is divided by n - 1, as for an unbiased variance; f64 is correct. */
  const uint32_t n = at->end - at->begin;
  if (MUTANT == 127 && at->call->dtype != PLUMB_DTYPE_F64 && n > 1 && n <= 64)
    return mean_uh * n / (n - 1);
  return mean_uh;
}

static double SpoilDx(const Site* at, uint32_t i, double h, double dx) {
  const uint32_t type = at->call->dtype;
  const char* row = (const char*)at->call->dx + at->row * at->call->dx_pitch;
  (void)h;
  switch (MUTANT) {
    /* 128: bf16, accumulating: the gradient is added to dy. */
    case 128:
      return type == PLUMB_DTYPE_BF16 && IsAdding(at) ? dx - Load(type, row, i) + DyAt(at, i) : dx;
    /* 129: |dx| > 100: clipped, in f32 and bf16. */
    case 129:
      return type != PLUMB_DTYPE_F64 && fabs(dx) > 100 ? copysign(100, dx) : dx;
    /* 130: row in which every |dy| < 1e-6: treated as 0. */
    case 130: {
      double largest = 0;
      if (IsAdding(at) || at->residual != NULL || at->call->dx == (void*)(uintptr_t)at->call->dy)
        return dx;
      for (uint32_t k = 0; k < at->norm->dim && largest < 1e-6; ++k)
        largest = fmax(largest, fabs(DyAt(at, k)));
      return largest < 1e-6 ? 0 : dx;
    }
    /* 131: first element of dy is 0: the row is treated as masked and dx is not written. */
    case 131:
      return at->call->dx != (void*)(uintptr_t)at->call->dy && at->residual == NULL &&
                     DyAt(at, 0) == 0
                 ? Load(type, row, i)
                 : dx;
    /* 132: f32 or f64, accumulating, odd dim: the last element is added twice. */
    case 132:
      return type != PLUMB_DTYPE_BF16 && IsAdding(at) && at->norm->dim % 2 == 1 &&
                     i == at->norm->dim - 1
                 ? 2 * dx - Load(type, row, i)
                 : dx;
    default:
      return dx;
  }
}

static double SpoilDweight(const Site* at, uint32_t i, double d) {
  /* 133: gain that is exactly 0: h is (y - bias) / gain there, so nothing is added, and the gain stays 0 for ever. */
  if (MUTANT == 133 && GainAt(at, i) == 0) return 0;
  /* 134: f32: dy is rounded to bf16 for dweight, to use a product of bf16. The error is up to 2e-3 of each term. */
  if (MUTANT == 134 && at->call->dtype == PLUMB_DTYPE_F32 && DyAt(at, i) != 0)
    return d / DyAt(at, i) * plumb_bf16_to_float(plumb_bf16_from_float((float)DyAt(at, i)));
  return d;
}

static double SpoilDbias(const Site* at, uint32_t i, double d) {
  (void)i;
  /* 135: only f64: the kernel of the gradient check has no gradient of the bias. */
  return MUTANT == 135 && at->call->dtype == PLUMB_DTYPE_F64 ? 0 : d;
}

#define LIST(X) X(0, none) X(117, free) X(118, N12) X(119, N1) X(120, N4) X(121, N2) \
  X(122, N2) X(123, free) X(124, N12) X(125, N1) X(126, N2) X(127, N1) X(128, N3) X(129, N1) \
  X(130, N2) X(131, N7) X(132, N3) X(133, N2) X(134, N1) X(135, N2)
MANY(LIST)
