/* std_norm: y = gamma (x - mean) / (sigma + eps) + beta, with sigma the row's standard deviation
 * and eps outside the root: the layer normalization of the Annotated Transformer (Rush 2018).
 * There, and by default here, sigma is the unbiased estimate, with dim - 1 in the denominator; with
 * `unbiased: false` it is dim.
 *
 * Let n be that denominator, s = 1 / (sigma + eps), h = (x - mean) s, so that y = gamma h + beta,
 * u = dy gamma the gradient of h, and <a> the mean of a over the row.
 *     dsigma/dx_j = (x_j - mean) / (n sigma), as deviations from the mean sum to 0
 *     dh_i/dx_j   = s ([i = j] - 1/dim) - s h_i dsigma/dx_j
 *     dx_j = s (u_j - <u>) - s c (x_j - mean) / (n sigma) = s (u_j - <u>) - h_j c / (n sigma)
 *     c    = sum_i(u_i h_i),   dgamma = sum over rows of dy h,   dbeta = sum over rows of dy
 * In a row of one constant sigma is 0 and has no derivative; 0 is a subgradient, so the term with
 * sigma is left out there: dx = (u - <u>) / eps.
 *
 * forward() keeps mean and sigma for each row; backward() reads x again and makes h from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("std_norm");

enum { kEps, kUnbiased, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kEps] = {.name = "eps",
              .doc = "Added to the standard deviation.",
              .type = PLUMB_ATTR_F64,
              .min = 1e-12,
              .max = 1,
              .def = {.f = 1e-6}},
    [kUnbiased] = {.name = "unbiased",
                   .doc = "Whether the variance is the sum of squares over dim - 1, or over dim.",
                   .type = PLUMB_ATTR_BOOL,
                   .max = 1,
                   .def = {.i = 1}},
};

struct plumb_norm_instance {
  size_t dim;
  double eps, n; /* n: the denominator of the variance */
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
 * in, with LOAD and STORE between the two; S what sums over a row are kept in. */
#define ROWS(SUFFIX, T, REAL, S, LOAD, STORE)                                                    \
  HOT static void Forward##SUFFIX(const plumb_norm_instance* norm, const plumb_norm_call* call,  \
                                  int64_t r0, int64_t r1) {                                      \
    const size_t dim = norm->dim;                                                                \
    const REAL *weight = call->params[0], *bias = call->params[1];                               \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                              \
      T* y = PLUMB_ROW(T, call->y, call->y_pitch, row);                                          \
      double sum, squares;                                                                       \
      SUM(S, sum, dim, LOAD(x[i]));                                                              \
      const REAL mean = (REAL)(sum / (double)dim);                                               \
      SUM(S, squares, dim, (S)(LOAD(x[i]) - mean) * (S)(LOAD(x[i]) - mean));                     \
      const REAL sigma = (REAL)sqrt(squares / norm->n),                                          \
                 s = (REAL)(1 / ((double)sigma + norm->eps));                                    \
      if (call->saved != NULL) {                                                                 \
        REAL* saved = PLUMB_ROW(REAL, call->saved, call->saved_pitch, row);                      \
        saved[0] = mean;                                                                         \
        saved[1] = sigma;                                                                        \
      }                                                                                          \
      EACH(i, 0, dim) y[i] = STORE(weight[i] * ((LOAD(x[i]) - mean) * s) + bias[i]);             \
    }                                                                                            \
  }                                                                                              \
  HOT static void Backward##SUFFIX(const plumb_norm_instance* norm, const plumb_norm_call* call, \
                                   int64_t r0, int64_t r1) {                                     \
    const size_t dim = norm->dim;                                                                \
    const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                        \
    const REAL* weight = call->params[0];                                                        \
    REAL *dweight = call->dparams[0], *dbias = call->dparams[1];                                 \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                              \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, row);                           \
      T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, row);                                       \
      const REAL* saved = PLUMB_CONST_ROW(REAL, call->saved, call->saved_pitch, row);            \
      const REAL mean = saved[0], s = (REAL)(1 / ((double)saved[1] + norm->eps));                \
      const double sigma = (double)saved[1];                                                     \
      double sum_u, sum_uh;                                                                      \
      SUM(S, sum_u, dim, LOAD(dy[i]) * weight[i]);                                               \
      SUM(S, sum_uh, dim, LOAD(dy[i]) * weight[i] * ((LOAD(x[i]) - mean) * s));                  \
      const REAL mean_u = (REAL)(sum_u / (double)dim);                                           \
      const REAL c = sigma == 0 ? 0 : (REAL)(sum_uh / (norm->n * sigma));                        \
      EACH(i, 0, dim) {                                                                          \
        const REAL g = LOAD(dy[i]), h = (LOAD(x[i]) - mean) * s;                                 \
        const REAL gradient = s * (g * weight[i] - mean_u) - h * c;                              \
        dweight[i] += g * h;                                                                     \
        dbias[i] += g;                                                                           \
        dx[i] = STORE(accumulate ? LOAD(dx[i]) + gradient : gradient);                           \
      }                                                                                          \
    }                                                                                            \
  }
#define AS_IT_IS(value) (value)
ROWS(F32, float, float, double, AS_IT_IS, AS_IT_IS)
ROWS(BF16, plumb_bf16, float, float, plumb_bf16_to_float, plumb_bf16_from_float)
ROWS(F64, double, double, double, AS_IT_IS, AS_IT_IS)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_F32:
      ForwardF32(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_BF16:
      ForwardBF16(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_F64:
      ForwardF64(norm, call, r0, r1);
      return PLUMB_OK;
    default:
      return PLUMB_UNIMPLEMENTED;
  }
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  switch (call->dtype) {
    case PLUMB_F32:
      BackwardF32(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_BF16:
      BackwardBF16(norm, call, r0, r1);
      return PLUMB_OK;
    case PLUMB_F64:
      BackwardF64(norm, call, r0, r1);
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
  const int unbiased = values[kUnbiased].i != 0;
  if (unbiased && dim == 1) {
    if (cap > 0) {
      snprintf(err, cap,
               "dim is 1, and one number has no unbiased deviation: set unbiased to false");
    }
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  *norm = (plumb_norm_instance){
      .dim = dim,
      .eps = eps,
      .n = (double)dim - (unbiased ? 1 : 0),
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
  out->n_params = 2;
  out->params = norm->params;
  out->saved_per_row = 2; /* mean, sigma */
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "std_norm",
    .name = "Standard deviation norm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc = "y = gamma (x - mean) / (sigma + eps) + beta; Rush 2018, The Annotated Transformer.",
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
