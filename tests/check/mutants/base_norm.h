/* SPDX-License-Identifier: Apache-2.0 */
/* A correct, complete and strict norm, y = x / sqrt(mean(x^2) + eps) * weight, in which a mutant
 * breaks one thing. A mutant is
 *
 *   #define BASE_FORWARD SpoiltForward
 *   #include "base_norm.h"
 *   static plumb_status SpoiltForward(...) { ... BaseForward(...) ... }
 *
 * Every function and constant of the table can be replaced in the same way, before the include.
 * Replacements are declared here and have the signature of the original. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_BASE_NORM_H_
#define PLUMB_TESTS_CHECK_MUTANTS_BASE_NORM_H_

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

#define BASE_UNUSED __attribute__((unused))

/* -- Replaceable parts ------------------------------------------------------------------------- */

#ifndef BASE_ID
#define BASE_ID "org.example.base"
#endif
#ifndef BASE_NOTE /* the whole declaration, or nothing */
#define BASE_NOTE PLUMB_NORM_NOTE(BASE_ID);
#endif
#ifndef BASE_VERSION
#define BASE_VERSION "1.0.0"
#endif
#ifndef BASE_DOC
#define BASE_DOC "y = x / sqrt(mean(x^2) + eps) * weight."
#endif
#ifndef BASE_FLAGS
#define BASE_FLAGS                                                         \
  (PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED | \
   PLUMB_NORM_SCALE_INVARIANT)
#endif
#ifndef BASE_DTYPES
#define BASE_DTYPES (PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64)
#endif
#ifndef BASE_ATTR_DOC
#define BASE_ATTR_DOC "Added to the mean of the squares."
#endif
#ifndef BASE_EPS_MIN
#define BASE_EPS_MIN 0
#endif
#ifndef BASE_EPS_MAX
#define BASE_EPS_MAX 1
#endif
#ifndef BASE_EPS_DEFAULT
#define BASE_EPS_DEFAULT 1e-6
#endif
#ifndef BASE_REFUSES_EPS /* values that create() refuses; the host has checked the range */
#define BASE_REFUSES_EPS(eps) 0
#endif
#ifndef BASE_MORE_ATTRS /* definitions after that of eps, each with a comma, and their number */
#define BASE_MORE_ATTRS
#define BASE_MORE_ATTRS_COUNT 0
#endif
#ifndef BASE_AVAILABLE
#define BASE_AVAILABLE NULL
#endif
#ifndef BASE_CREATE
#define BASE_CREATE BaseCreate
#endif
#ifndef BASE_DESTROY
#define BASE_DESTROY BaseDestroy
#endif
#ifndef BASE_LAYOUT
#define BASE_LAYOUT BaseLayout
#endif
#ifndef BASE_FORWARD
#define BASE_FORWARD BaseForward
#endif
#ifndef BASE_BACKWARD
#define BASE_BACKWARD BaseBackward
#endif
#ifndef BASE_STATS_PARTIAL
#define BASE_STATS_PARTIAL NULL
#endif
#ifndef BASE_STATS_COMBINE
#define BASE_STATS_COMBINE NULL
#endif
#ifndef BASE_STATS_FINALIZE
#define BASE_STATS_FINALIZE NULL
#endif
#ifndef BASE_GET_EXTENSION
#define BASE_GET_EXTENSION BaseGetExtension
#endif

static plumb_status BASE_CREATE(const plumb_host* host, uint32_t dim,
                                const plumb_attr_value* values, plumb_norm_instance** out,
                                char* err, size_t cap);
static void BASE_DESTROY(plumb_norm_instance* instance);
static plumb_status BASE_LAYOUT(const plumb_norm_instance* instance, plumb_norm_layout* out);
static plumb_status BASE_FORWARD(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                 int64_t r0, int64_t r1);
static plumb_status BASE_BACKWARD(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1);
static const void* BASE_GET_EXTENSION(const char* id);

/* -- The norm ---------------------------------------------------------------------------------- */

BASE_NOTE

struct plumb_norm_instance {
  uint32_t dim;
  double eps;
  plumb_tensor_def weight;
};

static const plumb_attr_def base_attrs[] = {{"eps",
                                             BASE_ATTR_DOC,
                                             PLUMB_ATTR_F64,
                                             0,
                                             BASE_EPS_MIN,
                                             BASE_EPS_MAX,
                                             {BASE_EPS_DEFAULT, 0, NULL},
                                             NULL},
                                            BASE_MORE_ATTRS};

BASE_UNUSED static plumb_status BaseCreate(const plumb_host* host, uint32_t dim,
                                           const plumb_attr_value* values,
                                           plumb_norm_instance** out, char* err, size_t cap) {
  const double eps = values[0].f;
  plumb_norm_instance* instance;
  (void)host;
  if (BASE_REFUSES_EPS(eps)) {
    if (cap > 0) snprintf(err, cap, "eps = %g is refused", eps);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  instance = (plumb_norm_instance*)calloc(1, sizeof(*instance));
  if (instance == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  instance->dim = dim;
  instance->eps = eps;
  instance->weight.name = "weight";
  instance->weight.doc = "The gain.";
  instance->weight.ndim = 1;
  instance->weight.dims[0] = dim;
  instance->weight.init = PLUMB_INIT_ONES;
  instance->weight.lr_scale = 1;
  *out = instance;
  return PLUMB_OK;
}

BASE_UNUSED static void BaseDestroy(plumb_norm_instance* instance) { free(instance); }

BASE_UNUSED static plumb_status BaseLayout(const plumb_norm_instance* instance,
                                           plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &instance->weight;
  out->saved_per_row = 1; /* r = 1 / sqrt(mean(x^2) + eps) */
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static inline double BaseDouble(double value) { return value; }
static inline double BaseFromF32(float value) { return value; }
static inline float BaseToF32(double value) { return (float)value; }
static inline double BaseFromBf16(plumb_bf16 value) { return plumb_bf16_to_float(value); }
static inline plumb_bf16 BaseToBf16(double value) { return plumb_bf16_from_float((float)value); }

/* T: element type; A: accumulate type. Sums are in double, one element after the other, so that
 * no range, address or alignment changes a bit. With h = x r and g = dy weight:
 *    dx = r (g - h mean(g h)), dweight += dy h. */
#define BASE_KERNELS(NAME, T, A, LOAD, STORE)                                                    \
  BASE_UNUSED static void BaseForward##NAME(const plumb_norm_instance* n,                        \
                                            const plumb_norm_call* c, int64_t r0, int64_t r1) {  \
    const A* weight = (const A*)c->params[0];                                                    \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                                    \
      T* y = PLUMB_ROW(T, c->y, c->y_pitch, row);                                                \
      double squares = 0;                                                                        \
      for (uint32_t i = 0; i < n->dim; ++i) squares += LOAD(x[i]) * LOAD(x[i]);                  \
      const A r = (A)(1 / sqrt(squares / n->dim + n->eps));                                      \
      if (c->saved != NULL) *PLUMB_ROW(A, c->saved, c->saved_pitch, row) = r;                    \
      for (uint32_t i = 0; i < n->dim; ++i)                                                      \
        y[i] = STORE(LOAD(x[i]) * (double)r * (double)weight[i]);                                \
    }                                                                                            \
  }                                                                                              \
  BASE_UNUSED static void BaseBackward##NAME(const plumb_norm_instance* n,                       \
                                             const plumb_norm_call* c, int64_t r0, int64_t r1) { \
    const A* weight = (const A*)c->params[0];                                                    \
    A* dweight = (A*)c->dparams[0];                                                              \
    const int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                                  \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                                    \
      const T* dy = PLUMB_CONST_ROW(T, c->dy, c->dy_pitch, row);                                 \
      T* dx = PLUMB_ROW(T, c->dx, c->dx_pitch, row);                                             \
      const double r = *PLUMB_CONST_ROW(A, c->saved, c->saved_pitch, row);                       \
      double mean = 0;                                                                           \
      for (uint32_t i = 0; i < n->dim; ++i)                                                      \
        mean += LOAD(dy[i]) * (double)weight[i] * LOAD(x[i]) * r;                                \
      mean /= n->dim;                                                                            \
      for (uint32_t i = 0; i < n->dim; ++i) {                                                    \
        const double h = LOAD(x[i]) * r, d = LOAD(dy[i]);                                        \
        const A gradient = (A)(r * (d * (double)weight[i] - h * mean));                          \
        dweight[i] += (A)(d * h);                                                                \
        dx[i] = STORE(add ? LOAD(dx[i]) + (double)gradient : (double)gradient);                  \
      }                                                                                          \
    }                                                                                            \
  }
BASE_KERNELS(F32, float, float, BaseFromF32, BaseToF32)
BASE_KERNELS(Bf16, plumb_bf16, float, BaseFromBf16, BaseToBf16)
BASE_KERNELS(F64, double, double, BaseDouble, BaseDouble)

BASE_UNUSED static plumb_status BaseForward(const plumb_norm_instance* instance,
                                            const plumb_norm_call* call, int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F32) return BaseForwardF32(instance, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return BaseForwardBf16(instance, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return BaseForwardF64(instance, call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

BASE_UNUSED static plumb_status BaseBackward(const plumb_norm_instance* instance,
                                             const plumb_norm_call* call, int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F32) return BaseBackwardF32(instance, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return BaseBackwardBf16(instance, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return BaseBackwardF64(instance, call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

BASE_UNUSED static const void* BaseGetExtension(const char* id) {
  (void)id;
  return NULL;
}

#ifndef BASE_TABLE_SIZE
#define BASE_TABLE_SIZE sizeof(plumb_norm_plugin)
#endif

static const plumb_norm_plugin base_norm = {
    BASE_TABLE_SIZE,
    0,
    BASE_ID,
    "Base norm",
    BASE_VERSION,
    "Example",
    "Apache-2.0",
    BASE_DOC,
    BASE_FLAGS,
    BASE_DTYPES,
    1 + BASE_MORE_ATTRS_COUNT,
    sizeof(plumb_attr_def),
    base_attrs,
    BASE_AVAILABLE,
    BASE_CREATE,
    BASE_DESTROY,
    BASE_LAYOUT,
    BASE_FORWARD,
    BASE_BACKWARD,
    BASE_STATS_PARTIAL,
    BASE_STATS_COMBINE,
    BASE_STATS_FINALIZE,
    BASE_GET_EXTENSION,
};

#ifndef BASE_HAS_ENTRY_OF_ITS_OWN
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &base_norm : NULL;
}
#endif

#endif /* PLUMB_TESTS_CHECK_MUTANTS_BASE_NORM_H_ */
