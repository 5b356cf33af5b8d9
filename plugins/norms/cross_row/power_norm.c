/* SPDX-License-Identifier: Apache-2.0 */
/* power_norm: PN, batch normalization without the mean, by a running quadratic mean.
 *
 *   Shen, Yao, Gholami, Mahoney & Keutzer 2020, "PowerNorm: Rethinking Batch Normalization in
 *   Transformers", arXiv:2003.07845, algorithms 1 and 2, in the form of the authors' code.
 *
 * A row is first scaled by its own root mean square, in `groups` equal parts (the authors'
 * GroupScaling; `groups: 0` drops it):
 *   q = 1 / sqrt(mean of x^2 over the group + eps),  s = q x
 * Then, for each column, with <.> the mean over the n rows of a call and psi = <s^2>:
 *   training     z = s / sqrt(phi + eps); in the first `warmup` calls z = s / sqrt(psi + eps)
 *                y = weight z + bias
 *   after it     in call k < warmup first phi = phi (k - 1) / k + psi / k, and always
 *                phi = alpha_forward phi + (1 - alpha_forward) psi
 *   evaluation   y = weight s / sqrt(phi + eps) + bias
 *
 * Backward is not the derivative of forward. phi depends on past calls, whose gradients are gone;
 * nu, a running mean of <u z>, replaces the term that the derivative of batch normalization
 * subtracts. With u = dy weight:
 *   e = u - (1 - alpha_backward) nu z
 *   ds = e / sqrt(psi + eps)
 *   nu = nu + <e z> = nu + <u z> - (1 - alpha_backward) nu <z^2>, after its use in e
 *   dweight = sum dy z,  dbias = sum dy
 * (The paper divides e by sqrt(phi + eps), and its nu is (1 - alpha_backward) times this one.)
 * The gradient through the scaling of the row is exact. With <.> the mean over the group, since
 * dq/dx_j = -q^3 x_j / size:
 *   dx = q (ds - s <ds s>)
 *
 * Statistics. A partial is [rows, sum s^2, 0] forward and [rows, sum dy, sum dy z]
 * backward.
 */
#ifndef ELEMENT /* code for all element types; the rest is compiled for each of them */

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("power_norm");

enum { kWeight, kBias, kParams };
enum { kPhi, kNu, kIterations, kBuffers };
enum { kEps, kAlphaForward, kAlphaBackward, kWarmup, kGroups, kAffine, kAttrs };
enum { kPartialRows, kPartialColumns }; /* followed by two numbers per column */
/* Parts of call_saved, dim numbers each: 1 / sqrt(phi + eps) with the phi or psi of z,
 * 1 / sqrt(psi + eps), <z^2>; and from the backward statistics ds = gain dy - pull s. */
enum { kRoot, kBatchRoot, kMeanSquare, kGain, kPull, kSavedParts };
enum { kMaxDim = 1 << 28 }; /* so that all sizes fit 32 bits */
enum { kLanes = 16 };       /* adjacent partial sums, for vectors: their order affects the result */

struct plumb_norm_instance {
  size_t dim;
  double eps, alpha_forward, alpha_backward, warmup;
  size_t groups, group_size;
  bool scaled; /* false: one group, and q = 1 */
  bool affine;
  plumb_tensor_def params[kParams], buffers[kBuffers];
};

#define CROSS_ROW_FILE "power_norm.c"
#include "cross_row.h"

static const plumb_attr_def kAttributes[kAttrs] = {
    [kEps] = ATTR("eps", F64, f, 1, 1e-5, "Added to mean squares before their roots."),
    [kAlphaForward] =
        ATTR("alpha_forward", F64, f, 1, 0.9, "Decay of the running quadratic mean in each call."),
    [kAlphaBackward] = ATTR("alpha_backward", F64, f, 1, 0.9,
                            "Decay of the running mean of the gradient along z."),
    [kWarmup] = ATTR("warmup", I64, i, 1e7, 10000,
                     "Training calls that are normalized by their own quadratic mean."),
    [kGroups] = ATTR("groups", I64, i, NAN, 1, /* create() checks it against dim */
                     "Equal parts of a row that are first scaled by their root mean squares; 0 "
                     "skips that."),
    [kAffine] = ATTR("affine", BOOL, i, 1, 1, "Adds a weight and a bias."),
};

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  if (dim < 1 || dim > kMaxDim) {
    snprintf(err, cap, "dim must be from 1 to %d", (int)kMaxDim);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  const int64_t groups = values[kGroups].i;
  if (groups < 0 || groups > dim || (groups > 0 && dim % groups != 0)) {
    snprintf(err, cap, "groups is %lld, and must be 0 or divide dim, which is %u",
             (long long)groups, dim);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* instance = calloc(1, sizeof(*instance));
  if (instance == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  instance->dim = dim;
  instance->eps = values[kEps].f;
  instance->alpha_forward = values[kAlphaForward].f;
  instance->alpha_backward = values[kAlphaBackward].f;
  instance->warmup = (double)values[kWarmup].i;
  instance->scaled = groups > 0;
  instance->groups = groups > 0 ? (size_t)groups : 1;
  instance->group_size = dim / instance->groups;
  instance->affine = values[kAffine].i != 0;
  instance->params[kWeight] = Tensor("weight", "The gain.", PLUMB_INIT_ONES, dim);
  instance->params[kBias] = Tensor("bias", "The shift.", PLUMB_INIT_ZEROS, dim);
  instance->buffers[kPhi] =
      Tensor("phi", "Running quadratic mean of each column.", PLUMB_INIT_ONES, dim);
  instance->buffers[kNu] =
      Tensor("nu", "Running mean of each column's gradient along z.", PLUMB_INIT_ZEROS, dim);
  instance->buffers[kIterations] =
      Tensor("iterations", "Training calls so far (stops at 2^24).", PLUMB_INIT_ZEROS, 0);
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
  out->saved_per_row = instance->scaled ? (uint32_t)instance->groups : 0; /* q */
  out->saved_per_call = kSavedParts * dim;
  out->partial_elems = kPartialColumns + 2 * dim;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  out->scratch_bytes = dim * sizeof(double); /* weight times 1 / sqrt(phi + eps) */
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "power_norm",
    .name = "PowerNorm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "Each row scaled by its root mean square, then each column by a running quadratic mean; "
        "an approximate gradient; Shen et al. 2020, arXiv:2003.07845. A token sees those after "
        "it during the warm-up.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_APPROXIMATE_GRADIENT |
             PLUMB_NORM_CROSS_ROW,
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

static SUM FOR_TYPE(InverseRoot)(SUM square) {
  return square == 0 ? 0 : (SUM)(1 / sqrt((double)square)); /* 0: all zeros, without eps */
}

static SUM FOR_TYPE(MakeSum)(SUM* lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

/* Returns q of one group. */
static inline SUM FOR_TYPE(GroupScale)(const plumb_norm_instance* instance, const ELEMENT* x) {
  if (!instance->scaled) return 1;
  const size_t n = instance->group_size, whole = n - n % kLanes;
  SUM lanes[kLanes] = {0};
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) lanes[k] += LOAD(x[i + k]) * LOAD(x[i + k]);
  }
  for (size_t i = whole; i < n; ++i) lanes[i - whole] += LOAD(x[i]) * LOAD(x[i]);
  return FOR_TYPE(InverseRoot)(FOR_TYPE(MakeSum)(lanes) / (SUM)n + (SUM)instance->eps);
}

/* Returns q of a group as forward() saved it. */
static inline SUM FOR_TYPE(SavedScale)(const plumb_norm_instance* instance,
                                       const plumb_norm_call* call, int64_t r, size_t group) {
  return instance->scaled ? PLUMB_CONST_ROW(SUM, call->saved, call->saved_pitch, r)[group] : 1;
}

HOT static void FOR_TYPE(Partial)(const plumb_norm_instance* instance, uint32_t phase,
                                  const plumb_norm_call* call, int64_t r0, int64_t r1,
                                  void* partial) {
  const size_t size = instance->group_size;
  SUM* out = partial;
  out[kPartialRows] = (SUM)(r1 - r0);
  for (int64_t r = r0; r < r1; ++r) {
    for (size_t group = 0; group < instance->groups; ++group) {
      const size_t c = group * size;
      const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r) + c;
      SUM* first = out + kPartialColumns + c;
      if (phase == PLUMB_PHASE_FORWARD) {
        const SUM q = FOR_TYPE(GroupScale)(instance, x);
        INDEPENDENT for (size_t i = 0; i < size; ++i) first[i] +=
            (LOAD(x[i]) * q) * (LOAD(x[i]) * q);
      } else {
        const ELEMENT* dy = PLUMB_CONST_ROW(ELEMENT, call->dy, call->dy_pitch, r) + c;
        const SUM q = FOR_TYPE(SavedScale)(instance, call, r, group);
        const SUM* root = (const SUM*)call->call_saved + kRoot * instance->dim + c;
        SUM* second = first + instance->dim;
        INDEPENDENT for (size_t i = 0; i < size; ++i) {
          const SUM g = LOAD(dy[i]);
          first[i] += g;
          second[i] += g * (LOAD(x[i]) * q * root[i]);
        }
      }
    }
  }
}

static void FOR_TYPE(Combine)(size_t dim, uint32_t phase, void* acc, const void* partial) {
  (void)phase; /* both phases are sums */
  SUM* a = acc;
  const SUM* b = partial;
  if (b[kPartialRows] == 0) return;
  a[kPartialRows] += b[kPartialRows];
  INDEPENDENT for (size_t i = kPartialColumns; i < kPartialColumns + 2 * dim; ++i) a[i] += b[i];
}

static void FOR_TYPE(FinalizeForward)(const plumb_norm_instance* instance,
                                      const plumb_norm_call* call, SUM rows, const SUM* sum) {
  const size_t dim = instance->dim;
  const SUM eps = (SUM)instance->eps, warmup = (SUM)instance->warmup;
  const SUM keep = (SUM)instance->alpha_forward, take = (SUM)(1 - instance->alpha_forward);
  SUM* saved = call->call_saved;
  SUM* phi = call->buffers[kPhi];
  SUM* iterations = call->buffers[kIterations];
  const SUM k = *iterations + 1;
  const bool update = rows > 0 && (call->flags & PLUMB_CALL_TRAIN) != 0;
  for (size_t i = 0; i < dim; ++i) {
    const SUM psi = sum[i] / (rows > 0 ? rows : 1);
    const SUM batch_root = FOR_TYPE(InverseRoot)(psi + eps);
    const SUM root = k <= warmup ? batch_root : FOR_TYPE(InverseRoot)(phi[i] + eps);
    saved[kRoot * dim + i] = root;
    saved[kBatchRoot * dim + i] = batch_root;
    saved[kMeanSquare * dim + i] = psi * root * root;
    saved[kGain * dim + i] = saved[kPull * dim + i] = 0;
    if (!update) continue;
    const SUM warm = k < warmup ? phi[i] * ((k - 1) / k) + psi / k : phi[i];
    phi[i] = keep * warm + take * psi;
  }
  if (update) *iterations = k;
}

static void FOR_TYPE(FinalizeBackward)(const plumb_norm_instance* instance,
                                       const plumb_norm_call* call, SUM rows, const SUM* sum_dy,
                                       const SUM* sum_dy_z) {
  const size_t dim = instance->dim;
  const SUM* weight = instance->affine ? call->params[kWeight] : NULL;
  const SUM take = (SUM)(1 - instance->alpha_backward);
  SUM* saved = call->call_saved;
  SUM* nu = call->buffers[kNu];
  for (size_t i = 0; rows > 0 && i < dim; ++i) {
    const SUM w = weight != NULL ? weight[i] : 1, pull = take * nu[i];
    saved[kGain * dim + i] = w * saved[kBatchRoot * dim + i];
    saved[kPull * dim + i] = pull * saved[kRoot * dim + i] * saved[kBatchRoot * dim + i];
    nu[i] += w * (sum_dy_z[i] / rows) - pull * saved[kMeanSquare * dim + i];
  }
  if (!instance->affine) return;
  SUM* dweight = call->dparams[kWeight];
  SUM* dbias = call->dparams[kBias];
  for (size_t i = 0; i < dim; ++i) {
    dweight[i] += sum_dy_z[i];
    dbias[i] += sum_dy[i];
  }
}

static void FOR_TYPE(Finalize)(const plumb_norm_instance* instance, uint32_t phase,
                               const plumb_norm_call* call, const void* acc) {
  const SUM rows = ((const SUM*)acc)[kPartialRows];
  const SUM* first = (const SUM*)acc + kPartialColumns;
  if (phase == PLUMB_PHASE_FORWARD) {
    FOR_TYPE(FinalizeForward)(instance, call, rows, first);
  } else {
    FOR_TYPE(FinalizeBackward)(instance, call, rows, first, first + instance->dim);
  }
}

HOT static void FOR_TYPE(Forward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const size_t dim = instance->dim, size = instance->group_size;
  const SUM* weight = instance->affine ? call->params[kWeight] : NULL;
  SUM* scale = call->scratch;
  if (call->call_saved != NULL) {
    memcpy(scale, (const SUM*)call->call_saved + kRoot * dim, dim * sizeof(SUM));
  } else {
    const SUM* phi = call->buffers[kPhi];
    for (size_t i = 0; i < dim; ++i) scale[i] = FOR_TYPE(InverseRoot)(phi[i] + (SUM)instance->eps);
  }
  for (size_t i = 0; i < (instance->affine ? dim : 0); ++i) scale[i] *= weight[i];
  for (int64_t r = r0; r < r1; ++r) {
    for (size_t group = 0; group < instance->groups; ++group) {
      const size_t c = group * size;
      const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r) + c;
      ELEMENT* y = PLUMB_ROW(ELEMENT, call->y, call->y_pitch, r) + c;
      const SUM* factor = scale + c;
      const SUM q = FOR_TYPE(GroupScale)(instance, x);
      if (instance->scaled && call->saved != NULL) {
        PLUMB_ROW(SUM, call->saved, call->saved_pitch, r)[group] = q;
      }
      if (instance->affine) {
        const SUM* bias = (const SUM*)call->params[kBias] + c;
        INDEPENDENT for (size_t i = 0; i < size; ++i) y[i] =
            STORE(LOAD(x[i]) * q * factor[i] + bias[i]);
      } else {
        INDEPENDENT for (size_t i = 0; i < size; ++i) y[i] = STORE(LOAD(x[i]) * q * factor[i]);
      }
    }
  }
}

/* Returns ds s of one element. */
static inline SUM FOR_TYPE(Product)(SUM gain, SUM dy, SUM pull, SUM s) {
  return (gain * dy - pull * s) * s;
}

HOT static void FOR_TYPE(Backward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  const size_t dim = instance->dim, size = instance->group_size, whole = size - size % kLanes;
  const bool accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  for (int64_t r = r0; r < r1; ++r) {
    for (size_t group = 0; group < instance->groups; ++group) {
      const size_t c = group * size;
      const ELEMENT* x = PLUMB_CONST_ROW(ELEMENT, call->x, call->x_pitch, r) + c;
      const ELEMENT* dy = PLUMB_CONST_ROW(ELEMENT, call->dy, call->dy_pitch, r) + c;
      ELEMENT* dx = PLUMB_ROW(ELEMENT, call->dx, call->dx_pitch, r) + c;
      const SUM* gain = (const SUM*)call->call_saved + kGain * dim + c;
      const SUM* pull = (const SUM*)call->call_saved + kPull * dim + c;
      const SUM q = FOR_TYPE(SavedScale)(instance, call, r, group);
      SUM mean = 0; /* <ds s> */
      if (instance->scaled) {
        SUM lanes[kLanes] = {0};
        for (size_t i = 0; i < whole; i += kLanes) {
          for (size_t k = 0; k < kLanes; ++k) {
            lanes[k] +=
                FOR_TYPE(Product)(gain[i + k], LOAD(dy[i + k]), pull[i + k], LOAD(x[i + k]) * q);
          }
        }
        for (size_t i = whole; i < size; ++i) {
          lanes[i - whole] += FOR_TYPE(Product)(gain[i], LOAD(dy[i]), pull[i], LOAD(x[i]) * q);
        }
        mean = FOR_TYPE(MakeSum)(lanes) / (SUM)size;
      }
      INDEPENDENT for (size_t i = 0; i < size; ++i) {
        const SUM s = LOAD(x[i]) * q;
        const SUM d = q * (gain[i] * LOAD(dy[i]) - pull[i] * s - s * mean);
        dx[i] = STORE(accumulate ? LOAD(dx[i]) + d : d);
      }
    }
  }
}

static const Functions FOR_TYPE(kFunctions) = {
    FOR_TYPE(Partial), FOR_TYPE(Combine), FOR_TYPE(Finalize), FOR_TYPE(Forward), FOR_TYPE(Backward),
};

#endif /* ELEMENT */
