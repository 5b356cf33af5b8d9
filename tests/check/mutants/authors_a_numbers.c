/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants with a condition on the element type, the phase or the size of numbers. */
#include "many.h"
#define SPOIL_SAVED_R SpoilSavedR
#define SPOIL_Y SpoilY
#define SPOIL_GAIN_BACKWARD SpoilGainBackward
#define SPOIL_MEAN_UH SpoilMeanUh
#define SPOIL_DX SpoilDx
#define SPOIL_DWEIGHT SpoilDweight
#define SPOIL_DBIAS SpoilDbias
#include "norm.h"

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
    /* 131: first element of dy is 0: the row is treated as masked and dx is not written. */
    case 131:
      return at->call->dx != (void*)(uintptr_t)at->call->dy && at->residual == NULL &&
                     DyAt(at, 0) == 0
                 ? Load(type, row, i)
                 : dx;
    default:
      return dx;
  }
}

static double SpoilDweight(const Site* at, uint32_t i, double d) {
  /* 133: gain that is exactly 0: h is (y - bias) / gain there, so nothing is added, and the gain stays 0 for ever. */
  if (MUTANT == 133 && GainAt(at, i) == 0) return 0;
  return d;
}

static double SpoilDbias(const Site* at, uint32_t i, double d) {
  (void)i;
  /* 135: only f64: the kernel of the gradient check has no gradient of the bias. */
  return MUTANT == 135 && at->call->dtype == PLUMB_DTYPE_F64 ? 0 : d;
}

#define LIST(X) X(0, none) X(121, N2) \
  X(122, N2) X(126, N2) X(127, N1) \
  X(131, N7) X(133, N2) X(135, N2)
MANY(LIST)
