/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of norms over rows, each wrapping one function of base_cross_norm.h, a batch norm.
 * Partial statistics are [n, mean, squares] in doubles; call_saved is [mean, r, <u>, <u h>].
 * Each line is: condition: bug (the rule that it violates). */
#include "many.h"
#include "operand.h"
#include "plumb/ext/combine.h"
#include "plumb/norm_plugin.h"
#undef plumb_norm_plugin_v1
#define plumb_norm_plugin_v1 CrossEntry
#include "cross_norm.h"
#undef plumb_norm_plugin_v1
#define plumb_norm_plugin_v1 HonestEntry
/* clang-format off */
/* 271. the first range has one row: combine treats that as nothing, because it has no variance
 *      ("combined").
 * 272. product of two counts of 2^31 and more: n n' is computed in int32 (Chan et al., the
 *      spread).
 * 273. f64: means are combined in float (accumulate type).
 * 274. dim = 3 modulo 4: finalize of the backward phase writes over the mean ("it still holds what
 *      PLUMB_PHASE_FORWARD left").
 * 275. one row in the call: the running variance is divided by n - 1 (0 / 0, evaluation is NaN).
 * 276. one row in the call, training: forward uses the running statistics ("forward and
 *      backward read call_saved").
 * 277. dim of 513 to 4096, two ranges at once: partials are in a static array ("no mutable
 *      global").
 * 278. |mean| much larger than the spread, f32: <x^2> - <x>^2 in float (the equation).
 * 279. rows above 1024, no multiple of it: backward divides the sum of u by the number of rows
 *      in whole blocks of 1024 (the derivative).
 * 281. evaluation: a call without rows in training clears the running mean ("an empty range does
 *      nothing").
 * 282. backward phase: buffers are updated a second time ("once a phase": statistics of the
 *      forward phase).
 * 283. accumulating, range not at 0: dx is overwritten ("dx += gradient"). */
/* clang-format on */

static plumb_status MyPartial(const plumb_norm_instance* norm, uint32_t phase,
                              const plumb_norm_call* call, int64_t r0, int64_t r1, void* partial) {
  const uint32_t dim = call->dim;
  if (IS(277) && dim > 512 && dim <= 4096) {
    static double shared[2 * (1 + 2 * 4096)];
    memset(shared, 0, (1 + 2 * (size_t)dim) * sizeof(double));
    const plumb_status status = StatsPartial(norm, phase, call, r0, r1, shared);
    memcpy(partial, shared, (1 + 2 * (size_t)dim) * sizeof(double));
    return status;
  }
  const plumb_status status = StatsPartial(norm, phase, call, r0, r1, partial);
  if (IS(278) && phase == PLUMB_PHASE_FORWARD && call->dtype == PLUMB_DTYPE_F32 && r1 > r0) {
    double* squares = (double*)partial + 1 + dim;
    for (uint32_t i = 0; i < dim; ++i) {
      float sum = 0, sum_squares = 0;
      for (int64_t r = r0; r < r1; ++r) {
        const float x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r)[i];
        sum += x;
        sum_squares += x * x;
      }
      const float n = (float)(r1 - r0), mean = sum / n, variance = sum_squares / n - mean * mean;
      squares[i] = (double)(variance > 0 ? variance * n : 0);
    }
  }
  return status;
}

static void MyCombine(const plumb_norm_instance* norm, uint32_t phase, const plumb_norm_call* call,
                      void* acc, const void* partial) {
  double* a = (double*)acc;
  const double* p = (const double*)partial;
  const uint32_t dim = call->dim;
  const double na = a[0], nb = p[0];
  if (IS(271) && phase == PLUMB_PHASE_FORWARD && nb == 1 && na == 0 && call->rows > 1) return;
  if (IS(272) && phase == PLUMB_PHASE_FORWARD && na > 0 && nb > 0 && na * nb >= 2147483648.0) {
    const int32_t product = (int32_t)(uint32_t)((uint64_t)na * (uint64_t)nb);
    for (uint32_t i = 1; i <= dim; ++i) {
      const double d = p[i] - a[i];
      a[i] += d * (nb / (na + nb));
      a[dim + i] += p[dim + i] + d * d * (product / (na + nb));
    }
    a[0] = na + nb;
    return;
  }
  StatsCombine(norm, phase, call, acc, partial);
  if (IS(273) && phase == PLUMB_PHASE_FORWARD && call->dtype == PLUMB_DTYPE_F64 && na > 0 &&
      nb > 0) {
    for (uint32_t i = 1; i <= dim; ++i) a[i] = (double)(float)a[i];
  }
}

static plumb_status CombineExtension(const plumb_norm_instance* norm, uint32_t phase,
                                     const plumb_norm_call* call, void* acc, const void* partial) {
  MyCombine(norm, phase, call, acc, partial);
  return PLUMB_OK;
}

#define FINALIZE(NAME, T)                                                                       \
  static void After##NAME(uint32_t phase, const plumb_norm_call* call, const double* acc) {     \
    const uint32_t dim = call->dim;                                                             \
    const int train = (call->flags & PLUMB_CALL_TRAIN) != 0;                                    \
    T* saved = (T*)call->call_saved;                                                            \
    if (phase == PLUMB_PHASE_FORWARD) {                                                         \
      if (IS(281) && train && call->rows == 0) memset(call->buffers[0], 0, dim * sizeof(T));    \
      if (IS(275) && train && call->rows == 1) {                                                \
        T* variance = (T*)call->buffers[1];                                                     \
        const double n = (double)call->rows;                                                    \
        for (uint32_t i = 0; i < dim; ++i) variance[i] += (T)(acc[1 + dim + i] / (n - 1) / 10); \
      }                                                                                         \
      return;                                                                                   \
    }                                                                                           \
    for (uint32_t i = 0; i < dim; ++i) {                                                        \
      if (IS(274) && dim % 4 == 3) saved[i] = saved[2 * dim + i];                               \
      if (IS(279) && call->rows > 1024) {                                                       \
        saved[2 * dim + i] *= (T)call->rows / (T)(call->rows / 1024 * 1024);                    \
      }                                                                                         \
      if (IS(282)) {                                                                            \
        T* mean = (T*)call->buffers[0];                                                         \
        mean[i] += (T)(CROSS_MOMENTUM * (double)(saved[i] - mean[i]));                          \
      }                                                                                         \
    }                                                                                           \
  }
FINALIZE(F32, float)
FINALIZE(F64, double)

static plumb_status MyFinalize(const plumb_norm_instance* norm, uint32_t phase,
                               const plumb_norm_call* call, void* acc) {
  const plumb_status status = StatsFinalize(norm, phase, call, acc);
  if (status != PLUMB_OK) return status;
  if (call->dtype == PLUMB_DTYPE_F32) AfterF32(phase, call, (const double*)acc);
  if (call->dtype == PLUMB_DTYPE_F64) AfterF64(phase, call, (const double*)acc);
  return PLUMB_OK;
}

static plumb_status MyForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                              int64_t r0, int64_t r1) {
  plumb_norm_call mine = CopyOfCall(call);
  if (IS(276) && call->rows == 1) mine.call_saved = NULL;
  return Forward(norm, &mine, r0, r1);
}

static plumb_status MyBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                               int64_t r0, int64_t r1) {
  plumb_norm_call mine = CopyOfCall(call);
  if (IS(283) && r0 > 0) mine.flags &= ~(uint32_t)PLUMB_CALL_DX_ACCUMULATE;
  return Backward(norm, &mine, r0, r1);
}

static const void* GetExtension(const char* id) {
  static const plumb_norm_combine combine = {sizeof(plumb_norm_combine), 0, CombineExtension};
  return strcmp(id, PLUMB_EXT_COMBINE) == 0 ? &combine : NULL;
}

static const plumb_norm_plugin my_norm = {
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
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = MyForward,
    .backward = MyBackward,
    .stats_partial = MyPartial,
    .stats_combine = MyCombine,
    .stats_finalize = MyFinalize,
    .get_extension = GetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &my_norm : NULL;
}

#define LIST(X) X(0, none) X(271, N16) X(272, N16) X(273, N13) X(274, N2) X(275, N1) \
  X(276, N2) X(277, R1) X(278, N1) X(279, N2) X(281, N10) X(282, free) \
  X(283, N3)
MANY(LIST)
