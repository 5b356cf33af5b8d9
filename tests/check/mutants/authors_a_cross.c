/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of a norm over rows: its statistics, their merging, its buffers, and evaluation. */
#include "many.h"
#include "call_copy.h"
#include "plumb/norm_plugin.h"

#undef plumb_norm_plugin_v1
#define plumb_norm_plugin_v1 CrossEntry
#include "base_cross_norm.h"
#undef plumb_norm_plugin_v1
#define plumb_norm_plugin_v1 HonestEntry

static inline double At(const plumb_norm_call* call, const void* base, uint32_t i) {
  return call->dtype == PLUMB_DTYPE_F64 ? ((const double*)base)[i]
                                        : (double)((const float*)base)[i];
}
static inline void Put(const plumb_norm_call* call, void* base, uint32_t i, double value) {
  if (call->dtype == PLUMB_DTYPE_F64) ((double*)base)[i] = value;
  if (call->dtype == PLUMB_DTYPE_F32) ((float*)base)[i] = (float)value;
}
static inline double X(const plumb_norm_call* call, int64_t row, uint32_t i) {
  return At(call, (const char*)call->x + row * call->x_pitch, i);
}
static int IsOffered(const plumb_norm_call* call) {
  return call->dtype == PLUMB_DTYPE_F32 || call->dtype == PLUMB_DTYPE_F64;
}
static int IsTraining(const plumb_norm_call* call) { return (call->flags & PLUMB_CALL_TRAIN) != 0; }

static plumb_status SpoilCreate(const plumb_host* host, uint32_t dim,
                                const plumb_attr_value* values, plumb_norm_instance** out,
                                char* err, size_t cap) {
  const plumb_status status = Create(host, dim, values, out, err, cap);
  /* 186: dim > 100: running_variance starts at 0 and not at 1, so that evaluation early in training divides by almost zero. */
  if (MUTANT == 186 && status == PLUMB_OK && dim > 100) (*out)->buffers[1].init = PLUMB_INIT_ZEROS;
  return status;
}

static plumb_status SpoilPartial(const plumb_norm_instance* norm, uint32_t phase,
                                 const plumb_norm_call* call, int64_t r0, int64_t r1,
                                 void* partial) {
  double* p = (double*)partial;
  const uint32_t dim = call->dim;
  const double n = (double)(r1 - r0);
  plumb_status status;
  /* 187: backward, range that starts at an odd row: its first row is skipped, because rows are processed in pairs. */
  if (MUTANT == 187 && phase == PLUMB_PHASE_BACKWARD && r0 % 2 == 1 && r0 < r1) ++r0;
  /* 188: forward, range of more than 100 rows: only the first 100 are used. */
  if (MUTANT == 188 && phase == PLUMB_PHASE_FORWARD && n > 100) r1 = r0 + 100;
  status = StatsPartial(norm, phase, call, r0, r1, partial);
  if (status != PLUMB_OK || phase != PLUMB_PHASE_FORWARD) return status;
  if (MUTANT == 188 && n > 100) {
    p[0] = n;
    for (uint32_t i = 1; i <= dim; ++i) p[dim + i] *= n / 100;
  }
  /* 189: f32, a mean much larger than the spread: computes the sum of squares minus n mean^2, in float. */
  for (uint32_t i = 0; MUTANT == 189 && call->dtype == PLUMB_DTYPE_F32 && n > 0 && i < dim; ++i) {
    float sum = 0, squares = 0;
    if (p[1 + i] * p[1 + i] * n < 1000 * p[1 + dim + i]) continue;
    for (int64_t r = r0; r < r1; ++r) {
      const float x = (float)X(call, r, i);
      sum += x;
      squares += x * x;
    }
    p[1 + dim + i] = fmax(0, squares - sum * sum / (float)n);
  }
  return status;
}

static void SpoilCombine(const plumb_norm_instance* norm, uint32_t phase,
                         const plumb_norm_call* call, void* acc, const void* partial) {
  double* a = (double*)acc;
  const double* b = (const double*)partial;
  const uint32_t dim = norm->dim;
  const double na = a[0];
  /* 190: forward, the third range and later ones: two means are averaged, whatever their counts. */
  if (MUTANT == 190 && phase == PLUMB_PHASE_FORWARD && b[0] > 0 && na >= 2 * b[0]) {
    a[0] = na + b[0];
    for (uint32_t i = 1; i <= dim; ++i) {
      const double d = b[i] - a[i];
      a[i] += d / 2;
      a[dim + i] += b[dim + i] + d * d * (na * b[0] / a[0]);
    }
    return;
  }
  /* 191: forward, a range without rows: counts as a range of one row. */
  if (MUTANT == 191 && phase == PLUMB_PHASE_FORWARD && b[0] == 0) {
    a[0] += 1;
    return;
  }
  StatsCombine(norm, phase, call, acc, partial);
  /* 192: backward, two ranges or more, dim no multiple of 8: in the tail only the last range counts. */
  if (MUTANT == 192 && phase == PLUMB_PHASE_BACKWARD)
    for (uint32_t i = dim / 8 * 8; i < dim; ++i) a[1 + i] = b[1 + i];
}

/* Updates the running statistics of a training call with another momentum. */
static void Update(const plumb_norm_call* call, const double* acc, double momentum) {
  const uint32_t dim = call->dim;
  for (uint32_t i = 0; i < dim; ++i) {
    const double mean = At(call, call->buffers[0], i), variance = At(call, call->buffers[1], i);
    Put(call, call->buffers[0], i, mean + momentum * (acc[1 + i] - mean));
    Put(call, call->buffers[1], i,
        variance + momentum * (acc[1 + dim + i] / (double)call->rows - variance));
  }
}

static plumb_status SpoilFinalize(const plumb_norm_instance* norm, uint32_t phase,
                                  const plumb_norm_call* call, void* acc) {
  const uint32_t dim = call->dim;
  const double *a = (const double*)acc, rows = (double)call->rows;
  plumb_norm_call evaluation = CopyOfCall(call);
  plumb_status status;
  if (!IsOffered(call)) return PLUMB_STATUS_UNIMPLEMENTED;
  evaluation.flags &= ~(uint32_t)PLUMB_CALL_TRAIN;
  /* 193: f32, training: momentum on the wrong side, 0.1 of the old and 0.9 of the new. */
  if (MUTANT == 193 && call->dtype == PLUMB_DTYPE_F32 && phase == PLUMB_PHASE_FORWARD &&
      IsTraining(call) && call->rows > 0) {
    status = StatsFinalize(norm, phase, &evaluation, acc);
    Update(call, a, 1 - CROSS_MOMENTUM);
    return status;
  }
  status = StatsFinalize(norm, phase, call, acc);
  if (call->rows == 0) return status;
  for (uint32_t i = 0; i < dim; ++i) {
    /* 194: 2 to 8 rows, training: the unbiased variance for the rows, while evaluation and backward use the biased one. */
    if (MUTANT == 194 && phase == PLUMB_PHASE_FORWARD && rows > 1 && rows <= 8)
      Put(call, call->call_saved, dim + i, 1 / sqrt(a[1 + dim + i] / (rows - 1) + CROSS_EPS));
    /* 195: backward, dim > 64: the place of the mean is used for a sum. */
    if (MUTANT == 195 && phase == PLUMB_PHASE_BACKWARD && dim > 64)
      Put(call, call->call_saved, i, a[1 + i]);
    /* 196: backward, dim a multiple of 16: the totals are added to dweight, and backward adds each row's too. */
    if (MUTANT == 196 && phase == PLUMB_PHASE_BACKWARD && dim % 16 == 0)
      Put(call, call->dparams[0], i, At(call, call->dparams[0], i) + a[1 + dim + i]);
  }
  /* 197: training, 32 rows or more: backward takes the running mean for part of the statistics, and moves it once more. */
  if (MUTANT == 197 && phase == PLUMB_PHASE_BACKWARD && call->rows >= 32 && call->buffers != NULL)
    for (uint32_t i = 0; i < dim; ++i)
      Put(call, call->buffers[0], i,
          At(call, call->buffers[0], i) * (1 - CROSS_MOMENTUM) +
              CROSS_MOMENTUM * At(call, call->call_saved, i));
  return status;
}

static plumb_status SpoilForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                 int64_t r0, int64_t r1) {
  const uint32_t dim = call->dim;
  if (!IsOffered(call)) return PLUMB_STATUS_UNIMPLEMENTED;
  /* 198: evaluation, range of 16 rows or more: the statistic is of these rows, not of the buffers. */
  if (MUTANT == 198 && call->call_saved == NULL && r1 - r0 >= 16) {
    for (uint32_t i = 0; i < dim; ++i) {
      double mean = 0, squares = 0;
      for (int64_t r = r0; r < r1; ++r) mean += X(call, r, i) / (double)(r1 - r0);
      for (int64_t r = r0; r < r1; ++r) squares += (X(call, r, i) - mean) * (X(call, r, i) - mean);
      for (int64_t r = r0; r < r1; ++r)
        Put(call, (char*)call->y + r * call->y_pitch, i,
            At(call, call->params[0], i) * (X(call, r, i) - mean) /
                sqrt(squares / (double)(r1 - r0) + CROSS_EPS));
    }
    return PLUMB_OK;
  }
  return Forward(norm, call, r0, r1);
}

static plumb_status SpoilBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const uint32_t dim = call->dim;
  if (!IsOffered(call)) return PLUMB_STATUS_UNIMPLEMENTED;
  /* 199: range that does not begin at row 0: without the term h <u h>, which was a sum of the range once. */
  for (int64_t r = r0; MUTANT == 199 && r0 > 0 && r < r1; ++r) {
    Backward(norm, call, r, r + 1);
    for (uint32_t i = 0; i < dim; ++i) {
      const double mean = At(call, call->call_saved, i), rstd = At(call, call->call_saved, dim + i);
      void* dx = (char*)call->dx + r * call->dx_pitch;
      Put(call, dx, i,
          At(call, dx, i) +
              rstd * ((X(call, r, i) - mean) * rstd) * At(call, call->call_saved, 3 * dim + i));
    }
  }
  if (MUTANT == 199 && r0 > 0) return PLUMB_OK;
  return Backward(norm, call, r0, r1);
}

static const plumb_norm_plugin the_mutant = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = CROSS_ID,
    .name = "Cross norm",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "Columns normalized over all rows of a call.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_CROSS_ROW |
             PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_F64,
    .attr_stride = sizeof(plumb_attr_def),
    .create = SpoilCreate,
    .destroy = Destroy,
    .layout = Layout,
    .forward = SpoilForward,
    .backward = SpoilBackward,
    .stats_partial = SpoilPartial,
    .stats_combine = SpoilCombine,
    .stats_finalize = SpoilFinalize,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_mutant : NULL;
}

#define LIST(X) X(186, free) X(187, N16) X(188, N16) X(189, N1) X(190, N2) X(191, N16) \
  X(192, N2) X(193, N1) X(194, N2) X(195, N2) X(196, N2) X(197, free) X(198, N4) \
  X(199, N3)
MANY(LIST)
