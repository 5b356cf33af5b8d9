/* SPDX-License-Identifier: Apache-2.0 */
/* batch_norm: batch normalization, each column over all rows (tokens) of a call.
 *
 *   Ioffe & Szegedy 2015, "Batch Normalization: Accelerating Deep Network Training by Reducing
 *   Internal Covariate Shift", arXiv:1502.03167, algorithms 1 and 2.
 *
 * With n rows, <.> the mean over them, and every line for one column:
 *
 *   training     mean = <x>, var = <(x - mean)^2>, rstd = 1 / sqrt(var + eps)
 *                h = (x - mean) rstd,  y = weight h + bias
 *                running_mean = (1 - momentum) running_mean + momentum mean
 *                running_var = (1 - momentum) running_var + momentum var n / (n - 1)
 *   evaluation   y = weight (x - running_mean) / sqrt(running_var + eps) + bias
 *
 * With one row var = 0 and y = bias, and running_var does not change.
 *
 * Backward. With u = dy weight, a change of x moves h directly, through the mean and through rstd:
 *   dh = rstd (dx - <dx>) - h <h dx> rstd,   as d var = 2 <(x - mean) dx> and <h> = 0,
 * and the transpose of that map, which is symmetric, takes u to the gradient:
 *   dx = rstd (u - <u> - h <u h>) = weight rstd (dy - <dy> - h <dy h>)
 *   dweight = sum dy h,  dbias = sum dy
 *
 * Statistics. A partial is [rows, mean, M2] forward, M2 = sum (x - mean)^2, and [rows,
 * sum dy, sum dy h] backward. Means and M2 of blocks of rows are combined by the formula of
 * Chan, Golub & LeVeque 1979 ("Updating formulae and a pairwise algorithm for computing sample
 * variances"), which loses nothing to cancellation: with d = mean_b - mean_a, n = n_a + n_b,
 *   mean = mean_a + d n_b / n,  M2 = M2_a + M2_b + d^2 n_a n_b / n
 */
#ifndef ELEMENT /* code for all element types; the rest is compiled for each of them */

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("batch_norm");

enum { kWeight, kBias, kParams };
enum { kRunningMean, kRunningVar, kNumBatches, kBuffers };
enum { kEps, kMomentum, kAffine, kAttrs };
enum { kPartialRows, kPartialColumns };                /* followed by two numbers per column */
enum { kMean, kRstd, kMeanDy, kMeanDyH, kSavedParts }; /* parts of call_saved, dim numbers each */
enum { kMaxDim = 1 << 28 };                            /* so that all sizes fit 32 bits */
/* columns and rows of a tile, which is read twice from the cache */
enum { kTile = 128, kBlock = 32 };

struct plumb_norm_instance {
  size_t dim;
  double eps, momentum;
  bool affine;
  plumb_tensor_def params[kParams], buffers[kBuffers];
};

static int64_t SmallerSize(int64_t a, int64_t b) { return a < b ? a : b; }

#define CROSS_ROW_FILE "batch_norm.c"
#include "cross_row.h"

static const plumb_attr_def kAttributes[kAttrs] = {
    [kEps] = ATTR("eps", F64, f, 1, 1e-5, "Added to the variance before the root."),
    [kMomentum] =
        ATTR("momentum", F64, f, 1, 0.1, "Weight of a call's statistics in the running ones."),
    [kAffine] = ATTR("affine", BOOL, i, 1, 1, "Adds a weight and a bias."),
};

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  if (dim < 1 || dim > kMaxDim) {
    snprintf(err, cap, "dim must be from 1 to %d", (int)kMaxDim);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* instance = calloc(1, sizeof(*instance));
  if (instance == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  instance->dim = dim;
  instance->eps = values[kEps].f;
  instance->momentum = values[kMomentum].f;
  instance->affine = values[kAffine].i != 0;
  instance->params[kWeight] = Tensor("weight", "The gain.", PLUMB_INIT_ONES, dim);
  instance->params[kBias] = Tensor("bias", "The shift.", PLUMB_INIT_ZEROS, dim);
  instance->buffers[kRunningMean] =
      Tensor("running_mean", "Mean of each column, for evaluation.", PLUMB_INIT_ZEROS, dim);
  instance->buffers[kRunningVar] = Tensor(
      "running_var", "Unbiased variance of each column, for evaluation.", PLUMB_INIT_ONES, dim);
  instance->buffers[kNumBatches] =
      Tensor("num_batches", "Training calls so far (stops at 2^24).", PLUMB_INIT_ZEROS, 0);
  *out = instance;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* instance) { free(instance); }

static plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  const uint32_t dim = (uint32_t)instance->dim;
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = instance->affine ? kParams : 0;
  out->n_buffers = kBuffers;
  out->params = instance->affine ? instance->params : NULL;
  out->buffers = instance->buffers;
  out->saved_per_call = kSavedParts * dim;
  out->partial_elems = kPartialColumns + 2 * dim;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  out->scratch_bytes = dim * sizeof(double); /* weight rstd */
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "batch_norm",
    .name = "BatchNorm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "Each column normalized over all rows of a call, running statistics in evaluation; "
        "Ioffe & Szegedy 2015, arXiv:1502.03167. A token sees those after it while training.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_CROSS_ROW,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    .n_attrs = kAttrs,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = kAttributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
    .stats_partial = StatsPartial,
    .stats_combine = StatsCombine,
    .stats_finalize = StatsFinalize,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}

#else /* ELEMENT: for one element type */

/* Merges the statistic of `rows_b` rows into that of `rows_a`. */
static void FOR_TYPE(MergeMoments)(SUM rows_a, SUM* mean_a, SUM* m2_a, SUM rows_b,
                                   const SUM* mean_b, const SUM* m2_b, size_t n) {
  const SUM share_b = rows_b / (rows_a + rows_b), factor = rows_a * share_b;
  INDEPENDENT for (size_t i = 0; i < n; ++i) {
    const SUM d = mean_b[i] - mean_a[i];
    mean_a[i] += d * share_b;
    m2_a[i] += m2_b[i] + d * factor * d; /* in this order: d^2 may overflow when factor is 0 */
  }
}

HOT static void FOR_TYPE(ForwardPartial)(size_t dim, const plumb_norm_call* call, int64_t r0,
                                         int64_t r1, SUM* mean, SUM* m2) {
  for (size_t c = 0; c < dim; c += kTile) {
    const size_t width = (size_t)SmallerSize(kTile, (int64_t)(dim - c));
    for (int64_t b0 = r0; b0 < r1; b0 += kBlock) {
      const int64_t b1 = SmallerSize(b0 + kBlock, r1);
      const SUM rows = (SUM)(b1 - b0);
      SUM block_mean[kTile] = {0}, block_m2[kTile] = {0};
      for (int64_t r = b0; r < b1; ++r) {
        const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r) + c;
        for (size_t i = 0; i < width; ++i) block_mean[i] += LOAD(x[i]);
      }
      for (size_t i = 0; i < width; ++i) block_mean[i] /= rows;
      for (int64_t r = b0; r < b1; ++r) {
        const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r) + c;
        for (size_t i = 0; i < width; ++i) {
          const SUM d = LOAD(x[i]) - block_mean[i];
          block_m2[i] += d * d;
        }
      }
      FOR_TYPE(MergeMoments)
      ((SUM)(b0 - r0), mean + c, m2 + c, rows, block_mean, block_m2, width);
    }
  }
}

HOT static void FOR_TYPE(BackwardPartial)(size_t dim, const plumb_norm_call* call, int64_t r0,
                                          int64_t r1, SUM* sum_dy, SUM* sum_dy_h) {
  const SUM* mean = (const SUM*)call->call_saved + kMean * dim;
  const SUM* rstd = (const SUM*)call->call_saved + kRstd * dim;
  for (int64_t r = r0; r < r1; ++r) {
    const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r);
    const ELEMENT* dy = PLUMB_CONST_ROW(ELEMENT, call->dy, call->dy_pitch, r);
    INDEPENDENT for (size_t i = 0; i < dim; ++i) {
      const SUM h = (LOAD(x[i]) - mean[i]) * rstd[i], g = LOAD(dy[i]);
      sum_dy[i] += g;
      sum_dy_h[i] += g * h;
    }
  }
}

static void FOR_TYPE(Partial)(const plumb_norm_instance* instance, uint32_t phase,
                              const plumb_norm_call* call, int64_t r0, int64_t r1, void* partial) {
  const size_t dim = instance->dim;
  SUM* out = partial;
  SUM* first = out + kPartialColumns;
  out[kPartialRows] = (SUM)(r1 - r0);
  if (phase == PLUMB_PHASE_FORWARD) {
    FOR_TYPE(ForwardPartial)(dim, call, r0, r1, first, first + dim);
  } else {
    FOR_TYPE(BackwardPartial)(dim, call, r0, r1, first, first + dim);
  }
}

static void FOR_TYPE(Combine)(size_t dim, uint32_t phase, void* acc, const void* partial) {
  SUM* a = acc;
  const SUM* b = partial;
  if (b[kPartialRows] == 0) return;
  SUM* a_columns = a + kPartialColumns;
  const SUM* b_columns = b + kPartialColumns;
  if (phase == PLUMB_PHASE_FORWARD) {
    FOR_TYPE(MergeMoments)
    (a[kPartialRows], a_columns, a_columns + dim, b[kPartialRows], b_columns, b_columns + dim, dim);
  } else {
    INDEPENDENT for (size_t i = 0; i < 2 * dim; ++i) a_columns[i] += b_columns[i];
  }
  a[kPartialRows] += b[kPartialRows];
}

static SUM FOR_TYPE(Rstd)(SUM variance, SUM eps) {
  const SUM square = variance + eps;
  return square == 0 ? 0 : (SUM)(1 / sqrt((double)square)); /* 0: a constant column, without eps */
}

static void FOR_TYPE(Finalize)(const plumb_norm_instance* instance, uint32_t phase,
                               const plumb_norm_call* call, const void* acc) {
  const size_t dim = instance->dim;
  const SUM rows = ((const SUM*)acc)[kPartialRows], at_least_one = rows > 1 ? rows : 1;
  const SUM* first = (const SUM*)acc + kPartialColumns;
  const SUM* second = first + dim;
  SUM* saved = call->call_saved;
  if (phase == PLUMB_PHASE_BACKWARD) {
    for (size_t i = 0; i < dim; ++i) {
      saved[kMeanDy * dim + i] = first[i] / at_least_one;
      saved[kMeanDyH * dim + i] = second[i] / at_least_one;
    }
    if (!instance->affine) return;
    SUM* dweight = call->dparams[kWeight];
    SUM* dbias = call->dparams[kBias];
    for (size_t i = 0; i < dim; ++i) {
      dweight[i] += second[i];
      dbias[i] += first[i];
    }
    return;
  }
  for (size_t i = 0; i < dim; ++i) {
    saved[kMean * dim + i] = first[i];
    saved[kRstd * dim + i] = FOR_TYPE(Rstd)(second[i] / at_least_one, (SUM)instance->eps);
    saved[kMeanDy * dim + i] = saved[kMeanDyH * dim + i] = 0;
  }
  if (rows == 0 || (call->flags & PLUMB_CALL_TRAIN) == 0) return;
  SUM* running_mean = call->buffers[kRunningMean];
  SUM* running_var = call->buffers[kRunningVar];
  const SUM take = (SUM)instance->momentum, keep = (SUM)(1 - instance->momentum);
  for (size_t i = 0; i < dim; ++i) {
    running_mean[i] = keep * running_mean[i] + take * first[i];
    if (rows > 1) running_var[i] = keep * running_var[i] + take * (second[i] / (rows - 1));
  }
  *(SUM*)call->buffers[kNumBatches] += 1;
}

HOT static void FOR_TYPE(Forward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const size_t dim = instance->dim;
  const SUM* weight = instance->affine ? call->params[kWeight] : NULL;
  const SUM* bias = instance->affine ? call->params[kBias] : NULL;
  const SUM* mean;
  SUM* scale = call->scratch;
  if (call->call_saved != NULL) {
    mean = (const SUM*)call->call_saved + kMean * dim;
    memcpy(scale, (const SUM*)call->call_saved + kRstd * dim, dim * sizeof(SUM));
  } else {
    const SUM* variance = call->buffers[kRunningVar];
    mean = call->buffers[kRunningMean];
    for (size_t i = 0; i < dim; ++i) scale[i] = FOR_TYPE(Rstd)(variance[i], (SUM)instance->eps);
  }
  for (size_t i = 0; i < (instance->affine ? dim : 0); ++i) scale[i] *= weight[i];
  for (int64_t r = r0; r < r1; ++r) {
    const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r);
    ELEMENT* y = PLUMB_ROW(ELEMENT, call->y, call->y_pitch, r);
    if (instance->affine) {
      INDEPENDENT for (size_t i = 0; i < dim; ++i) {
        y[i] = STORE((LOAD(x[i]) - mean[i]) * scale[i] + bias[i]);
      }
    } else {
      INDEPENDENT for (size_t i = 0; i < dim; ++i) y[i] = STORE((LOAD(x[i]) - mean[i]) * scale[i]);
    }
  }
}

HOT static void FOR_TYPE(Backward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  const size_t dim = instance->dim;
  const bool accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  const SUM* weight = instance->affine ? call->params[kWeight] : NULL;
  const SUM* mean = (const SUM*)call->call_saved + kMean * dim;
  const SUM* rstd = (const SUM*)call->call_saved + kRstd * dim;
  const SUM* mean_dy = (const SUM*)call->call_saved + kMeanDy * dim;
  const SUM* mean_dy_h = (const SUM*)call->call_saved + kMeanDyH * dim;
  SUM* scale = call->scratch;
  for (size_t i = 0; i < dim; ++i) scale[i] = instance->affine ? weight[i] * rstd[i] : rstd[i];
  for (int64_t r = r0; r < r1; ++r) {
    const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r);
    const ELEMENT* dy = PLUMB_CONST_ROW(ELEMENT, call->dy, call->dy_pitch, r);
    ELEMENT* dx = PLUMB_ROW(ELEMENT, call->dx, call->dx_pitch, r);
    INDEPENDENT for (size_t i = 0; i < dim; ++i) {
      const SUM h = (LOAD(x[i]) - mean[i]) * rstd[i];
      const SUM d = scale[i] * (LOAD(dy[i]) - mean_dy[i] - h * mean_dy_h[i]);
      dx[i] = STORE(accumulate ? LOAD(dx[i]) + d : d);
    }
  }
}

static const Functions FOR_TYPE(kFunctions) = {
    FOR_TYPE(Partial), FOR_TYPE(Combine), FOR_TYPE(Finalize), FOR_TYPE(Forward), FOR_TYPE(Backward),
};

#endif /* ELEMENT */
