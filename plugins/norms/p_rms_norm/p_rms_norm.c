/* p_rms_norm: y = g x r, where r = (<x^2>_k + eps)^(-1/2) and <x^2>_k is the mean over the first k
 * = ceil(p dim) elements of the row only: a part stands for the whole. pRMSNorm, Zhang & Sennrich
 * 2019, "Root Mean Square Layer Normalization", arXiv:1910.07467, section 4, with eps inside the
 * root as rms_norm has it.
 *
 * Let h = x r, so that y = g h, and u = dy g, the gradient of h. Only the first k elements move r:
 * dr/dx_j = -r^3 x_j / k for j < k, else 0. So
 *     dx_j = r u_j + [j < k] sum_i(u_i x_i) dr/dx_j = r (u_j - [j < k] h_j c)
 *     c    = sum_i(u_i h_i) / k, over all elements
 *     dg   = sum over rows of dy h
 * forward() keeps r for each row; backward() reads x again and makes h from it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("p_rms_norm");

enum { kP, kEps, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kP] = {.name = "p",
            .doc = "The part of the row, from its start, that the mean square is taken of.",
            .type = PLUMB_ATTR_F64,
            .min = 1e-6,
            .max = 1,
            .def = {.f = 0.0625}},
    [kEps] = {.name = "eps",
              .doc = "Added to the mean square before the root.",
              .type = PLUMB_ATTR_F64,
              .min = 1e-12,
              .max = 1,
              .def = {.f = 1e-5}},
};

struct plumb_norm_instance {
  size_t dim, k;
  double eps;
  plumb_tensor_def weight;
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
    const REAL* weight = call->params[0];                                                        \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                              \
      T* y = PLUMB_ROW(T, call->y, call->y_pitch, row);                                          \
      double squares;                                                                            \
      SUM(S, squares, norm->k, (S)LOAD(x[i]) * (S)LOAD(x[i]));                                   \
      const REAL r = (REAL)(1 / sqrt(squares / (double)norm->k + norm->eps));                    \
      if (call->saved != NULL) *PLUMB_ROW(REAL, call->saved, call->saved_pitch, row) = r;        \
      EACH(i, 0, dim) y[i] = STORE(weight[i] * (LOAD(x[i]) * r));                                \
    }                                                                                            \
  }                                                                                              \
  HOT static void Backward##SUFFIX(const plumb_norm_instance* norm, const plumb_norm_call* call, \
                                   int64_t r0, int64_t r1) {                                     \
    const size_t dim = norm->dim;                                                                \
    const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                        \
    const REAL* weight = call->params[0];                                                        \
    REAL* dweight = call->dparams[0];                                                            \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                              \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, row);                           \
      T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, row);                                       \
      const REAL r = *PLUMB_CONST_ROW(REAL, call->saved, call->saved_pitch, row);                \
      double sum;                                                                                \
      SUM(S, sum, dim, LOAD(dy[i]) * weight[i] * (LOAD(x[i]) * r));                              \
      for (int rest = 0; rest < 2; ++rest) { /* the first k elements, and those after them */    \
        const size_t begin = rest ? norm->k : 0, end = rest ? dim : norm->k;                     \
        const REAL c = rest ? 0 : (REAL)(sum / (double)norm->k);                                 \
        EACH(i, begin, end) {                                                                    \
          const REAL g = LOAD(dy[i]), h = LOAD(x[i]) * r;                                        \
          const REAL gradient = r * (g * weight[i] - h * c);                                     \
          dweight[i] += g * h;                                                                   \
          dx[i] = STORE(accumulate ? LOAD(dx[i]) + gradient : gradient);                         \
        }                                                                                        \
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
  for (size_t i = 0; i < kAttributeCount; ++i) {
    const plumb_attr_def* def = &the_attributes[i];
    if (values[i].f >= def->min && values[i].f <= def->max) continue;
    if (cap > 0) {
      snprintf(err, cap, "%s is %g, and must lie in [%g, %g]", def->name, values[i].f, def->min,
               def->max);
    }
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  /* p dim, rounded up; but not because 0.07 * 100 is a little more than 7. */
  const double k = ceil(values[kP].f * (double)dim * (1 - 1e-12));
  *norm = (plumb_norm_instance){
      .dim = dim,
      .k = (size_t)k,
      .eps = values[kEps].f,
      .weight = {.name = "weight",
                 .doc = "The gain g.",
                 .ndim = 1,
                 .dims = {dim},
                 .init = PLUMB_INIT_ONES,
                 .lr_scale = 1},
  };
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->weight;
  out->saved_per_row = 1; /* r */
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "p_rms_norm",
    .name = "pRMSNorm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "y = g x / sqrt(mean(x[:k]^2) + eps), k = ceil(p dim); Zhang & Sennrich 2019, "
        "arXiv:1910.07467.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
             PLUMB_NORM_SCALE_INVARIANT,
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
