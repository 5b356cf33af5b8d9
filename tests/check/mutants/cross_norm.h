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
 *
 * Statistics are merged as in Chan, Golub & LeVeque 1979, "Updating Formulae": for counts n,
 * means m and sums of squared distances S, S = Sa + Sb + (mb - ma)^2 na nb / n.
 *
 * Backward, with h = (x - mean) r, u = weight dy and <a> the mean of a over the rows:
 *     dx = r (u - <u> - h <u h>), dweight = sum of dy h. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_CROSS_NORM_H_
#define PLUMB_TESTS_CHECK_MUTANTS_CROSS_NORM_H_

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "operand.h"
#include "plumb/norm_plugin.h"

#ifndef CROSS_BEFORE_FORWARD
#define CROSS_BEFORE_FORWARD
#endif
#ifndef CROSS_RUNNING
#define CROSS_RUNNING(which, old, new) ((old) + CROSS_MOMENTUM * ((new) - (old)))
#endif
#ifndef CROSS_EVALUATION_MEAN
#define CROSS_EVALUATION_MEAN(means, i) Get(means, 0, i)
#endif
#ifndef CROSS_EVALUATION_RSTD
#define CROSS_EVALUATION_RSTD(variance) (1 / sqrt((variance) + CROSS_EPS))
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
    if (na != 0) acc[dim + i] += d * d * (na * nb / n);
  }
}

static Operand Wide(const plumb_norm_call* call, const void* base) {
  const Operand operand = {call->dtype, (void*)(uintptr_t)base, 0};
  return operand;
}
static double X(const plumb_norm_call* call, int64_t row, uint32_t i) {
  const Operand x = {call->dtype, (void*)(uintptr_t)call->x, call->x_pitch};
  return Get(x, row, i);
}
static int IsOffered(const plumb_norm_call* call) {
  return call->dtype == PLUMB_DTYPE_F32 || call->dtype == PLUMB_DTYPE_F64;
}
/* Rounds to the accumulate type. */
static double Narrow(const plumb_norm_call* call, double value) {
  return call->dtype == PLUMB_DTYPE_F32 ? (double)(float)value : value;
}

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
  const uint32_t dim = instance->dim;
  if (!IsOffered(call)) return PLUMB_STATUS_UNIMPLEMENTED;
  CROSS_BEFORE_FORWARD
  const Operand saved = Wide(call, call->call_saved), weight = Wide(call, call->params[0]);
  const Operand y = {call->dtype, call->y, call->y_pitch};
  for (uint32_t i = 0; i < dim; ++i) {
    double mean, rstd;
    if (call->call_saved != NULL) {
      mean = Get(saved, 0, i), rstd = Get(saved, 0, dim + i);
    } else {
      const Operand means = Wide(call, call->buffers[0]), variances = Wide(call, call->buffers[1]);
      mean = CROSS_EVALUATION_MEAN(means, i);
      rstd = Narrow(call, CROSS_EVALUATION_RSTD(Get(variances, 0, i)));
    }
    for (int64_t r = r0; r < r1; ++r)
      Set(y, r, i, Get(weight, 0, i) * Narrow(call, Narrow(call, X(call, r, i) - mean) * rstd));
  }
  return PLUMB_OK;
}

static plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const uint32_t dim = instance->dim;
  if (!IsOffered(call)) return PLUMB_STATUS_UNIMPLEMENTED;
  const Operand saved = Wide(call, call->call_saved), weight = Wide(call, call->params[0]);
  const Operand dweight = Wide(call, call->dparams[0]);
  const Operand dy = {call->dtype, (void*)(uintptr_t)call->dy, call->dy_pitch};
  const Operand dx = {call->dtype, call->dx, call->dx_pitch};
  for (int64_t r = r0; r < r1; ++r) {
    for (uint32_t i = 0; i < dim; ++i) {
      const double rstd = Get(saved, 0, dim + i), h = (X(call, r, i) - Get(saved, 0, i)) * rstd;
      const double u = Narrow(call, Get(weight, 0, i) * Get(dy, r, i)) - Get(saved, 0, 2 * dim + i);
      const double d = Narrow(call, rstd * (u - h * Get(saved, 0, 3 * dim + i)));
      Set(dweight, 0, i, Get(dweight, 0, i) + Narrow(call, Get(dy, r, i) * h));
      Set(dx, r, i, (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0 ? Get(dx, r, i) + d : d);
    }
  }
  return PLUMB_OK;
}

static plumb_status StatsPartial(const plumb_norm_instance* instance, uint32_t phase,
                                 const plumb_norm_call* call, int64_t r0, int64_t r1,
                                 void* partial) {
  const uint32_t dim = instance->dim;
  double *first = (double*)partial + 1, *second = first + dim;
  if (!IsOffered(call)) return PLUMB_STATUS_UNIMPLEMENTED;
  const Operand saved = Wide(call, call->call_saved), weight = Wide(call, call->params[0]);
  const Operand dy = {call->dtype, (void*)(uintptr_t)call->dy, call->dy_pitch};
  if (phase == PLUMB_PHASE_FORWARD) ((double*)partial)[0] = (double)(r1 - r0);
  for (int64_t r = r0; r < r1; ++r) {
    for (uint32_t i = 0; i < dim; ++i) {
      const double x = X(call, r, i), d = x - first[i];
      if (phase == PLUMB_PHASE_BACKWARD) {
        const double u = Narrow(call, Get(weight, 0, i) * Get(dy, r, i));
        first[i] += u;
        second[i] += u * ((x - Get(saved, 0, i)) * Get(saved, 0, dim + i));
        continue;
      }
      first[i] += d / (double)(r - r0 + 1); /* Welford 1962 */
      second[i] += d * (x - first[i]);
    }
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
  const uint32_t dim = instance->dim;
  const double *first = (const double*)acc + 1, *second = first + dim;
  const double n = call->rows > 0 ? (double)call->rows : 1;
  if (!IsOffered(call)) return PLUMB_STATUS_UNIMPLEMENTED;
  const Operand saved = Wide(call, call->call_saved);
  for (uint32_t i = 0; i < dim; ++i) {
    const uint32_t at = phase == PLUMB_PHASE_BACKWARD ? 2 * dim + i : i;
    const double variance = second[i] / n;
    Set(saved, 0, at, phase == PLUMB_PHASE_BACKWARD ? first[i] / n : first[i]);
    Set(saved, 0, at + dim,
        phase == PLUMB_PHASE_BACKWARD ? variance : 1 / sqrt(variance + CROSS_EPS));
    if (phase == PLUMB_PHASE_BACKWARD || (call->flags & PLUMB_CALL_TRAIN) == 0 || call->rows == 0)
      continue;
    for (int which = 0; which < 2; ++which) {
      const Operand buffer = Wide(call, call->buffers[which]);
      Set(buffer, 0, i, CROSS_RUNNING(which, Get(buffer, 0, i), which == 0 ? first[i] : variance));
    }
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

#endif /* PLUMB_TESTS_CHECK_MUTANTS_CROSS_NORM_H_ */
