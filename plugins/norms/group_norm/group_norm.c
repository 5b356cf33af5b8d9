/* group_norm: the row is cut into `groups` pieces of dim / groups neighbours, and each piece is
 * layer-normalized on its own: h = (x - mean) / sqrt(var + eps), with mean and (biased) variance
 * of the piece, and y = gamma h + beta with a gamma and a beta for each element of the row
 * (`affine: false`: y = h). Wu & He 2018, "Group Normalization", arXiv:1803.08494, for one token at
 * a time: no statistic leaves the row, unlike in images, where it runs over positions. As used on
 * the heads of retention, Sun et al. 2023, arXiv:2307.08621.
 *
 * In one piece, with <a> the mean of a over it, r = (var + eps)^(-1/2) and u = dy gamma, the
 * gradient of h:
 *     dr/dx_j   = -r^3 (x_j - mean) / n = -r^2 h_j / n, n the length of the piece
 *     dh_i/dx_j = r ([i = j] - 1/n) - r h_i h_j / n
 *     dx_j      = r (u_j - <u> - h_j <u h>)
 *     dgamma    = sum over rows of dy h,   dbeta = sum over rows of dy
 * forward() keeps mean and r for each piece; backward() reads x again and makes h from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("group_norm");

enum { kGroups, kEps, kAffine, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kGroups] = {.name = "groups",
                 .doc = "The number of pieces; it must divide the length of the row.",
                 .type = PLUMB_ATTR_I64,
                 .min = 1,
                 .max = NAN, /* create() compares it with dim */
                 .def = {.i = 1}},
    [kEps] = {.name = "eps",
              .doc = "Added to the variance before the root.",
              .type = PLUMB_ATTR_F64,
              .min = 1e-12,
              .max = 1,
              .def = {.f = 1e-5}},
    [kAffine] = {.name = "affine",
                 .doc = "Whether there are a gain and a bias.",
                 .type = PLUMB_ATTR_BOOL,
                 .max = 1,
                 .def = {.i = 1}},
};

struct plumb_norm_instance {
  size_t dim, groups;
  double eps;
  int affine;
  plumb_tensor_def params[2];
};

/* sum = the sum of `term` over i < n, kept in S. In many partial sums, because the compiler may not
 * reorder additions and would otherwise do one after the other. */
#define SUM(S, sum, n, term)                                         \
  do {                                                               \
    enum { kParts = 128 / sizeof(S) };                               \
    S part[kParts] = {0}, rest = 0;                                  \
    size_t start = 0;                                                \
    for (; start + kParts <= (n); start += kParts) {                 \
      for (size_t k = 0; k < kParts; ++k) {                          \
        const size_t i = start + k;                                  \
        part[k] += (S)(term);                                        \
      }                                                              \
    }                                                                \
    for (size_t i = start; i < (n); ++i) rest += (S)(term);          \
    for (size_t width = kParts / 2; width > 0; width /= 2) {         \
      for (size_t k = 0; k < width; ++k) part[k] += part[k + width]; \
    }                                                                \
    (sum) = (double)(part[0] + rest);                                \
  } while (0)

/* for (i = begin; i < end; ++i). y may be x and dx may be dy, but element i only ever meets element
 * i: the iterations are independent, which the compiler cannot know. */
#if defined(__clang__)
#define EACH(i, begin, end) \
  _Pragma("clang loop vectorize(assume_safety)") for (size_t i = (begin); i < (end); ++i)
#elif defined(__GNUC__)
#define EACH(i, begin, end) _Pragma("GCC ivdep") for (size_t i = (begin); i < (end); ++i)
#else
#define EACH(i, begin, end) for (size_t i = (begin); i < (end); ++i)
#endif

/* Compiled three times, and the one for this machine is chosen as the library is loaded. All give
 * the same bits if the compiler fuses no multiplication with an addition: -ffp-contract=off. */
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
#define HOT __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define HOT
#endif

/* The rows, written once for the three element types. T is the element; REAL what it is computed
 * in, with LOAD and STORE between the two; S what sums over a row are kept in. AFFINE is known to
 * the compiler, so that no loop asks. */
#define ROWS(SUFFIX, AFFINE, T, REAL, S, LOAD, STORE)                                            \
  HOT static void Forward##SUFFIX(const plumb_norm_instance* norm, const plumb_norm_call* call,  \
                                  int64_t r0, int64_t r1) {                                      \
    const size_t n = norm->dim / norm->groups;                                                   \
    const int affine = AFFINE;                                                                   \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      REAL* saved = call->saved ? PLUMB_ROW(REAL, call->saved, call->saved_pitch, row) : NULL;   \
      for (size_t group = 0; group < norm->groups; ++group) {                                    \
        const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row) + group * n;                \
        T* y = PLUMB_ROW(T, call->y, call->y_pitch, row) + group * n;                            \
        double sum, squares;                                                                     \
        SUM(S, sum, n, LOAD(x[i]));                                                              \
        const REAL mean = (REAL)(sum / (double)n);                                               \
        SUM(S, squares, n, (S)(LOAD(x[i]) - mean) * (S)(LOAD(x[i]) - mean));                     \
        const REAL r = (REAL)(1 / sqrt(squares / (double)n + norm->eps));                        \
        if (saved != NULL) {                                                                     \
          saved[2 * group] = mean;                                                               \
          saved[2 * group + 1] = r;                                                              \
        }                                                                                        \
        if (affine) {                                                                            \
          const REAL* weight = (const REAL*)call->params[0] + group * n;                         \
          const REAL* bias = (const REAL*)call->params[1] + group * n;                           \
          EACH(i, 0, n) y[i] = STORE(weight[i] * ((LOAD(x[i]) - mean) * r) + bias[i]);           \
        } else {                                                                                 \
          EACH(i, 0, n) y[i] = STORE((LOAD(x[i]) - mean) * r);                                   \
        }                                                                                        \
      }                                                                                          \
    }                                                                                            \
  }                                                                                              \
  HOT static void Backward##SUFFIX(const plumb_norm_instance* norm, const plumb_norm_call* call, \
                                   int64_t r0, int64_t r1) {                                     \
    const size_t n = norm->dim / norm->groups;                                                   \
    const int affine = AFFINE;                                                                   \
    const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                        \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const REAL* saved = PLUMB_CONST_ROW(REAL, call->saved, call->saved_pitch, row);            \
      for (size_t group = 0; group < norm->groups; ++group) {                                    \
        const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row) + group * n;                \
        const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, row) + group * n;             \
        T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, row) + group * n;                         \
        const REAL mean = saved[2 * group], r = saved[2 * group + 1];                            \
        const REAL* weight = affine ? (const REAL*)call->params[0] + group * n : NULL;           \
        double sum_u, sum_uh;                                                                    \
        SUM(S, sum_u, n, affine ? LOAD(dy[i]) * weight[i] : LOAD(dy[i]));                        \
        SUM(S, sum_uh, n,                                                                        \
            (affine ? LOAD(dy[i]) * weight[i] : LOAD(dy[i])) * ((LOAD(x[i]) - mean) * r));       \
        const REAL mean_u = (REAL)(sum_u / (double)n), mean_uh = (REAL)(sum_uh / (double)n);     \
        if (affine) {                                                                            \
          REAL* dweight = (REAL*)call->dparams[0] + group * n;                                   \
          REAL* dbias = (REAL*)call->dparams[1] + group * n;                                     \
          EACH(i, 0, n) {                                                                        \
            dweight[i] += LOAD(dy[i]) * ((LOAD(x[i]) - mean) * r);                               \
            dbias[i] += LOAD(dy[i]);                                                             \
          }                                                                                      \
        }                                                                                        \
        EACH(i, 0, n) {                                                                          \
          const REAL u = affine ? LOAD(dy[i]) * weight[i] : LOAD(dy[i]);                         \
          const REAL gradient = r * (u - mean_u - (LOAD(x[i]) - mean) * r * mean_uh);            \
          dx[i] = STORE(accumulate ? LOAD(dx[i]) + gradient : gradient);                         \
        }                                                                                        \
      }                                                                                          \
    }                                                                                            \
  }
#define AS_IT_IS(value) (value)
ROWS(F32, 0, float, float, double, AS_IT_IS, AS_IT_IS)
ROWS(F32Affine, 1, float, float, double, AS_IT_IS, AS_IT_IS)
ROWS(BF16, 0, plumb_bf16, float, float, plumb_bf16_to_float, plumb_bf16_from_float)
ROWS(BF16Affine, 1, plumb_bf16, float, float, plumb_bf16_to_float, plumb_bf16_from_float)
ROWS(F64, 0, double, double, double, AS_IT_IS, AS_IT_IS)
ROWS(F64Affine, 1, double, double, double, AS_IT_IS, AS_IT_IS)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_F32:
      (norm->affine ? ForwardF32Affine : ForwardF32)(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_BF16:
      (norm->affine ? ForwardBF16Affine : ForwardBF16)(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_F64:
      (norm->affine ? ForwardF64Affine : ForwardF64)(norm, call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_UNIMPLEMENTED;
  }
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_F32:
      (norm->affine ? BackwardF32Affine : BackwardF32)(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_BF16:
      (norm->affine ? BackwardBF16Affine : BackwardBF16)(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_F64:
      (norm->affine ? BackwardF64Affine : BackwardF64)(norm, call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_UNIMPLEMENTED;
  }
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  /* The host has checked this; a caller that has not is told so. A NaN is refused too. */
  const plumb_attr_def* def = &the_attributes[kEps];
  const double eps = values[kEps].f;
  if (!(eps >= def->min && eps <= def->max)) {
    if (cap > 0) snprintf(err, cap, "eps is %g, and must lie in [%g, %g]", eps, def->min, def->max);
    return PLUMB_INVALID_ARGUMENT;
  }
  const int64_t groups = values[kGroups].i;
  if (groups < 1 || dim % groups != 0) {
    if (cap > 0) {
      snprintf(err, cap, "groups is %lld, and must divide dim, which is %u", (long long)groups,
               dim);
    }
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  *norm = (plumb_norm_instance){
      .dim = dim,
      .groups = (size_t)groups,
      .eps = eps,
      .affine = values[kAffine].i != 0,
      .params = {{.name = "weight",
                  .doc = "The gain gamma.",
                  .ndim = 1,
                  .dims = {dim},
                  .init = PLUMB_INIT_ONES,
                  .lr_scale = 1},
                 {.name = "bias",
                  .doc = "The bias beta.",
                  .ndim = 1,
                  .dims = {dim},
                  .init = PLUMB_INIT_ZEROS,
                  .lr_scale = 1}},
  };
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = norm->affine ? 2 : 0;
  out->params = norm->params;
  out->saved_per_row = (uint32_t)(2 * norm->groups); /* mean and r of each piece */
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "group_norm",
    .name = "GroupNorm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "Layer norm on each of `groups` pieces of the row; Wu & He 2018, arXiv:1803.08494, per "
        "token.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
             PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
    .dtypes = PLUMB_F32 | PLUMB_BF16 | PLUMB_F64,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
