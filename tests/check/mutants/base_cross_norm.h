/* SPDX-License-Identifier: Apache-2.0 */
/* A correct cross-row norm, to be broken by mutants: y = weight * (x - mean) / sqrt(var + eps),
 * with the mean and the biased variance over the rows of a call (Ioffe & Szegedy 2015, "Batch
 * Normalization", alg. 1). It passes every check. A file that includes it may first define:
 *
 *   CROSS_ID               the norm's id, a string
 *   CROSS_BEFORE_FORWARD   a statement at the start of forward(), with `call`, `r0`, `r1`
 *   CROSS_RUNNING(which, old, new)   running statistic 0 (mean) or 1 (variance) after a
 *                          step whose statistic was `new`
 *   CROSS_EVALUATION_MEAN(means, i)   the mean that evaluation subtracts from column i
 *   CROSS_EVALUATION_RSTD(variance)   1 / the deviation by which evaluation divides
 *   CROSS_SPREAD(na, nb, term)   the term that merging statistics of na and nb rows adds to
 *                          the sum of squares; `term` is correct
 *
 * Statistics are merged as in Chan, Golub & LeVeque 1979, "Updating Formulae": for counts n,
 * means m and sums of squared distances S, S = Sa + Sb + (mb - ma)^2 na nb / n.
 *
 * Backward, with h = (x - mean) r, u = weight dy and <a> the mean of a over the rows:
 *     dx = r (u - <u> - h <u h>), dweight = sum of dy h. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_BASE_CROSS_NORM_H_
#define PLUMB_TESTS_CHECK_MUTANTS_BASE_CROSS_NORM_H_

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plumb/norm_plugin.h"

#ifndef CROSS_BEFORE_FORWARD
#define CROSS_BEFORE_FORWARD
#endif
#ifndef CROSS_RUNNING
#define CROSS_RUNNING(which, old, new) ((old) + CROSS_MOMENTUM * ((new) - (old)))
#endif
#ifndef CROSS_EVALUATION_MEAN
#define CROSS_EVALUATION_MEAN(means, i) ((means)[i])
#endif
#ifndef CROSS_EVALUATION_RSTD
#define CROSS_EVALUATION_RSTD(variance) (1 / sqrt((variance) + CROSS_EPS))
#endif
#ifndef CROSS_SPREAD
#define CROSS_SPREAD(na, nb, term) (term)
#endif

#define CROSS_ID "org.example.cross"
PLUMB_NORM_NOTE(CROSS_ID);

#define CROSS_EPS 1e-5
#define CROSS_MOMENTUM 0.1

struct plumb_norm_instance {
  uint32_t dim;
  plumb_tensor_def weight, buffers[2];
};

/* A partial statistic is [n, mean[dim], squares[dim]] of x, or [0, sum u[dim], sum u h[dim]]. It
 * consists of doubles, each of which takes the place of two numbers, for any element type.
 * call_saved is [mean, r, <u>, <u h>], each [dim]. */
static void Combine(uint32_t phase, uint32_t dim, double* acc, const double* partial) {
  const double na = acc[0], nb = partial[0], n = na + nb;
  if (phase == PLUMB_PHASE_BACKWARD) {
    for (uint32_t i = 1; i <= 2 * dim; ++i) acc[i] += partial[i];
    return;
  }
  if (nb == 0) return;
  acc[0] = n;
  for (uint32_t i = 1; i <= dim; ++i) {
    const double d = partial[i] - acc[i];
    acc[i] = na == 0 ? partial[i] : acc[i] + d * (nb / n);
    acc[dim + i] += partial[dim + i];
    if (na != 0) acc[dim + i] += CROSS_SPREAD(na, nb, d * d * (na * nb / n));
  }
}

#define CROSS_FUNCTIONS(T, SUFFIX)                                                                 \
  static void Partial##SUFFIX(uint32_t phase, const plumb_norm_call* call, int64_t r0, int64_t r1, \
                              double* partial) {                                                   \
    const uint32_t dim = call->dim;                                                                \
    double *first = partial + 1, *second = first + dim;                                            \
    const T* weight = (const T*)call->params[0];                                                   \
    const T *mean = (const T*)call->call_saved, *rstd = mean + dim;                                \
    if (phase == PLUMB_PHASE_FORWARD) partial[0] = (double)(r1 - r0);                                        \
    for (int64_t r = r0; r < r1; ++r) {                                                            \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);                                  \
      if (phase == PLUMB_PHASE_BACKWARD) {                                                                    \
        const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, r);                             \
        for (uint32_t i = 0; i < dim; ++i) {                                                       \
          first[i] += weight[i] * dy[i];                                                           \
          second[i] += weight[i] * dy[i] * ((x[i] - mean[i]) * rstd[i]);                           \
        }                                                                                          \
        continue;                                                                                  \
      }                                                                                            \
      for (uint32_t i = 0; i < dim; ++i) { /* Welford 1962 */                                      \
        const double d = x[i] - first[i];                                                          \
        first[i] += d / (double)(r - r0 + 1);                                                      \
        second[i] += d * (x[i] - first[i]);                                                        \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  static void Finalize##SUFFIX(uint32_t phase, const plumb_norm_call* call, const double* acc) {   \
    const uint32_t dim = call->dim;                                                                \
    const double *first = acc + 1, *second = first + dim;                                          \
    const double n = call->rows > 0 ? (double)call->rows : 1;                                      \
    T* saved = (T*)call->call_saved;                                                               \
    for (uint32_t i = 0; i < dim; ++i) {                                                           \
      if (phase == PLUMB_PHASE_BACKWARD) {                                                                    \
        saved[2 * dim + i] = (T)(first[i] / n);                                                    \
        saved[3 * dim + i] = (T)(second[i] / n);                                                   \
        continue;                                                                                  \
      }                                                                                            \
      const double variance = second[i] / n;                                                       \
      saved[i] = (T)first[i];                                                                      \
      saved[dim + i] = (T)(1 / sqrt(variance + CROSS_EPS));                                        \
      if ((call->flags & PLUMB_CALL_TRAIN) != 0 && call->rows > 0) {                               \
        T *running_mean = (T*)call->buffers[0], *running_variance = (T*)call->buffers[1];          \
        running_mean[i] = (T)CROSS_RUNNING(0, running_mean[i], first[i]);                          \
        running_variance[i] = (T)CROSS_RUNNING(1, running_variance[i], variance);                  \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  static void Forward##SUFFIX(const plumb_norm_call* call, int64_t r0, int64_t r1) {               \
    const uint32_t dim = call->dim;                                                                \
    const T *saved = (const T*)call->call_saved, *weight = (const T*)call->params[0];              \
    for (int64_t r = r0; r < r1; ++r) {                                                            \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);                                  \
      T* y = PLUMB_ROW(T, call->y, call->y_pitch, r);                                              \
      for (uint32_t i = 0; i < dim; ++i) {                                                         \
        const T mean =                                                                             \
            saved != NULL ? saved[i] : CROSS_EVALUATION_MEAN((const T*)call->buffers[0], i);       \
        const T rstd = saved != NULL                                                               \
                           ? saved[dim + i]                                                        \
                           : (T)CROSS_EVALUATION_RSTD((double)((const T*)call->buffers[1])[i]);    \
        y[i] = weight[i] * ((x[i] - mean) * rstd);                                                 \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  static void Backward##SUFFIX(const plumb_norm_call* call, int64_t r0, int64_t r1) {              \
    const uint32_t dim = call->dim;                                                                \
    const T *mean = (const T*)call->call_saved, *rstd = mean + dim, *mean_u = rstd + dim,          \
            *mean_uh = mean_u + dim, *weight = (const T*)call->params[0];                          \
    T* dweight = (T*)call->dparams[0];                                                             \
    for (int64_t r = r0; r < r1; ++r) {                                                            \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);                                  \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, r);                               \
      T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, r);                                           \
      for (uint32_t i = 0; i < dim; ++i) {                                                         \
        const T h = (x[i] - mean[i]) * rstd[i];                                                    \
        const T d = rstd[i] * (weight[i] * dy[i] - mean_u[i] - h * mean_uh[i]);                    \
        dweight[i] += dy[i] * h;                                                                   \
        dx[i] = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0 ? dx[i] + d : d;                     \
      }                                                                                            \
    }                                                                                              \
  }
CROSS_FUNCTIONS(float, F32)
CROSS_FUNCTIONS(double, F64)
#undef CROSS_FUNCTIONS

static plumb_tensor_def TensorDef(const char* name, const char* doc, uint32_t dim, uint32_t init) {
  plumb_tensor_def def;
  memset(&def, 0, sizeof(def));
  def.name = name;
  def.doc = doc;
  def.ndim = 1;
  def.dims[0] = dim;
  def.init = init;
  def.lr_scale = 1;
  return def;
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  plumb_norm_instance* instance = (plumb_norm_instance*)malloc(sizeof(*instance));
  (void)host, (void)values, (void)err, (void)cap;
  if (instance == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  instance->dim = dim;
  instance->weight = TensorDef("weight", "The gain.", dim, PLUMB_INIT_ONES);
  instance->buffers[0] = TensorDef("running_mean", "For evaluation.", dim, PLUMB_INIT_ZEROS);
  instance->buffers[1] = TensorDef("running_variance", "For evaluation.", dim, PLUMB_INIT_ONES);
  *out = instance;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* instance) { free(instance); }

static plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &instance->weight;
  out->n_buffers = 2;
  out->buffers = instance->buffers;
  out->saved_per_call = 4 * instance->dim;
  out->partial_elems = 2 * (1 + 2 * instance->dim);
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  (void)instance;
  if (call->dtype != PLUMB_DTYPE_F32 && call->dtype != PLUMB_DTYPE_F64) return PLUMB_STATUS_UNIMPLEMENTED;
  CROSS_BEFORE_FORWARD
  call->dtype == PLUMB_DTYPE_F32 ? ForwardF32(call, r0, r1) : ForwardF64(call, r0, r1);
  return PLUMB_OK;
}

static plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  (void)instance;
  if (call->dtype != PLUMB_DTYPE_F32 && call->dtype != PLUMB_DTYPE_F64) return PLUMB_STATUS_UNIMPLEMENTED;
  call->dtype == PLUMB_DTYPE_F32 ? BackwardF32(call, r0, r1) : BackwardF64(call, r0, r1);
  return PLUMB_OK;
}

static plumb_status StatsPartial(const plumb_norm_instance* instance, uint32_t phase,
                                 const plumb_norm_call* call, int64_t r0, int64_t r1,
                                 void* partial) {
  (void)instance;
  if (call->dtype == PLUMB_DTYPE_F32) {
    PartialF32(phase, call, r0, r1, (double*)partial);
  } else if (call->dtype == PLUMB_DTYPE_F64) {
    PartialF64(phase, call, r0, r1, (double*)partial);
  } else {
    return PLUMB_STATUS_UNIMPLEMENTED;
  }
  return PLUMB_OK;
}

static void StatsCombine(const plumb_norm_instance* instance, uint32_t phase,
                         const plumb_norm_call* call, void* acc, const void* partial) {
  (void)call;
  Combine(phase, instance->dim, (double*)acc, (const double*)partial);
}

static plumb_status StatsFinalize(const plumb_norm_instance* instance, uint32_t phase,
                                  const plumb_norm_call* call, void* acc) {
  (void)instance;
  if (call->dtype == PLUMB_DTYPE_F32) {
    FinalizeF32(phase, call, (const double*)acc);
  } else if (call->dtype == PLUMB_DTYPE_F64) {
    FinalizeF64(phase, call, (const double*)acc);
  } else {
    return PLUMB_STATUS_UNIMPLEMENTED;
  }
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = CROSS_ID,
    .name = "Cross norm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc = "Columns normalized over all rows of a call.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_CROSS_ROW |
             PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_F64,
    .attr_stride = sizeof(plumb_attr_def),
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

#endif /* PLUMB_TESTS_CHECK_MUTANTS_BASE_CROSS_NORM_H_ */
