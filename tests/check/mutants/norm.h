/* SPDX-License-Identifier: Apache-2.0 */
/* A correct norm with groups, an optional mean, an optional bias, a gain that may be 1 + weight,
 * and a fused residual. Over each group of a row:
 *
 *   mean = <x>, or 0 if kind is "rms";  r = 1 / sqrt(<(x - mean)^2> + eps);  h = (x - mean) r
 *   y = gain h + bias
 * With u = dy gain and <.> over the group:
 *   dx = r (u - <u> - h <u h>), without <u> if kind is "rms";  dweight += dy h;  dbias += dy
 *
 * A mutant replaces SPOIL_*, a function that takes a value and its place and returns the value
 * that the norm uses instead, NORM_*, a function of the table, or a constant of it. Its file defines
 * the name of the function before the include, and the function after it. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_NORM_H_
#define PLUMB_TESTS_CHECK_MUTANTS_NORM_H_

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb/ext/residual.h"
#include "operand.h"
#include "plumb/norm_plugin.h"

#define NORM_UNUSED __attribute__((unused))

enum { kEps, kKind, kGroups, kBias, kPlusOne, kAttributes };

struct plumb_norm_instance {
  uint32_t dim, groups;
  double eps;
  int rms, bias, plus_one;
  const char* kind;               /* for mutants that keep data that is not theirs */
  const plumb_attr_value* values; /* for the same mutants */
  plumb_tensor_def params[2];
};

/* Place where a value is computed. */
typedef struct Site {
  const plumb_norm_instance* norm;
  const plumb_norm_call* call;
  const plumb_residual_call* residual; /* NULL: not fused */
  int64_t r0, r1, row;
  uint32_t begin, end; /* of the group */
  double mean, r, mean_u, mean_uh;
} Site;

/* -- Replaceable parts ------------------------------------------------------------------------- */

#ifdef SPOIL_SQUARE /* (x - mean)^2 of element i */
static double SPOIL_SQUARE(const Site* at, uint32_t i, double square);
#else
#define SPOIL_SQUARE(at, i, square) (square)
#endif
#ifdef SPOIL_VARIANCE
static double SPOIL_VARIANCE(const Site* at, double variance);
#else
#define SPOIL_VARIANCE(at, variance) (variance)
#endif
#ifdef SPOIL_R
static double SPOIL_R(const Site* at, double variance, double r);
#else
#define SPOIL_R(at, variance, r) (r)
#endif
#ifdef SPOIL_SAVED_R /* the value that backward reads */
static double SPOIL_SAVED_R(const Site* at, double variance, double r);
#else
#define SPOIL_SAVED_R(at, variance, r) (r)
#endif
#ifdef SPOIL_Y
static double SPOIL_Y(const Site* at, uint32_t i, double h, double y);
#else
#define SPOIL_Y(at, i, h, y) (y)
#endif
#ifdef SPOIL_GAIN_BACKWARD
static double SPOIL_GAIN_BACKWARD(const Site* at, uint32_t i, double gain);
#else
#define SPOIL_GAIN_BACKWARD(at, i, gain) (gain)
#endif
#ifdef SPOIL_MEAN_U
static double SPOIL_MEAN_U(const Site* at, double mean_u);
#else
#define SPOIL_MEAN_U(at, mean_u) (mean_u)
#endif
#ifdef SPOIL_MEAN_UH
static double SPOIL_MEAN_UH(const Site* at, double mean_uh);
#else
#define SPOIL_MEAN_UH(at, mean_uh) (mean_uh)
#endif
#ifdef SPOIL_DX
static double SPOIL_DX(const Site* at, uint32_t i, double h, double dx);
#else
#define SPOIL_DX(at, i, h, dx) (dx)
#endif
#ifdef SPOIL_DWEIGHT
static double SPOIL_DWEIGHT(const Site* at, uint32_t i, double d);
#else
#define SPOIL_DWEIGHT(at, i, d) (d)
#endif
#ifdef SPOIL_DBIAS
static double SPOIL_DBIAS(const Site* at, uint32_t i, double d);
#else
#define SPOIL_DBIAS(at, i, d) (d)
#endif
#ifndef NORM_ID
#define NORM_ID "org.example.base"
#endif
#ifndef NORM_NOTE /* the whole declaration, or nothing */
#define NORM_NOTE PLUMB_NORM_NOTE(NORM_ID);
#endif
#ifndef NORM_VERSION
#define NORM_VERSION "1.0.0"
#endif
#ifndef NORM_DOC
#define NORM_DOC "y = gain (x - mean) / sqrt(var + eps) + bias, for each of several groups."
#endif
#ifndef NORM_FLAGS
#define NORM_FLAGS                                                         \
  (PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED | \
   PLUMB_NORM_SCALE_INVARIANT)
#endif
#ifndef NORM_ATTRIBUTE_DOC
#define NORM_ATTRIBUTE_DOC "Added to the variance."
#endif
#ifndef NORM_EPS_MAX
#define NORM_EPS_MAX 1
#endif
#ifndef NORM_CREATE
#define NORM_CREATE BaseCreate
#endif
#ifndef NORM_DESTROY
#define NORM_DESTROY BaseDestroy
#endif
#ifndef NORM_LAYOUT
#define NORM_LAYOUT BaseLayout
#endif
#ifndef NORM_FORWARD
#define NORM_FORWARD BaseForward
#endif
#ifndef NORM_BACKWARD
#define NORM_BACKWARD BaseBackward
#endif
#ifndef NORM_EXTENSION
#define NORM_EXTENSION GetExtension
#endif
#ifndef NORM_RESIDUAL_FORWARD
#define NORM_RESIDUAL_FORWARD BaseResidualForward
#endif
#ifndef NORM_RESIDUAL_BACKWARD
#define NORM_RESIDUAL_BACKWARD BaseResidualBackward
#endif

static plumb_status NORM_CREATE(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                             plumb_norm_instance** out, char* err, size_t cap);
static void NORM_DESTROY(plumb_norm_instance* norm);
static plumb_status NORM_LAYOUT(const plumb_norm_instance* norm, plumb_norm_layout* out);
static plumb_status NORM_FORWARD(const plumb_norm_instance* norm, const plumb_norm_call* call,
                              int64_t r0, int64_t r1);
static plumb_status NORM_BACKWARD(const plumb_norm_instance* norm, const plumb_norm_call* call,
                               int64_t r0, int64_t r1);
static const void* NORM_EXTENSION(const char* id);
static plumb_status NORM_RESIDUAL_FORWARD(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                       const plumb_residual_call* residual, int64_t r0, int64_t r1);
static plumb_status NORM_RESIDUAL_BACKWARD(const plumb_norm_instance* norm,
                                        const plumb_norm_call* call,
                                        const plumb_residual_call* residual, int64_t r0,
                                        int64_t r1);

/* -- Numbers of any type ----------------------------------------------------------------------- */

static inline double Load(uint32_t type, const void* row, uint32_t i) {
  const Operand operand = {type, (void*)(uintptr_t)row, 0};
  return Get(operand, 0, i);
}

static inline void Store(uint32_t type, void* row, uint32_t i, double value) {
  const Operand operand = {type, row, 0};
  Set(operand, 0, i, value);
}

static inline uint32_t Wide(uint32_t type) {
  return type == PLUMB_DTYPE_F64 ? PLUMB_DTYPE_F64 : PLUMB_DTYPE_F32;
}
static inline double Rounded(uint32_t type, double value) {
  return type == PLUMB_DTYPE_F64 ? value : (double)(float)value;
}

static inline double XAt(const Site* at, uint32_t i) {
  const plumb_norm_call* c = at->call;
  if (at->residual != NULL && c->dy == NULL)
    return Load(c->dtype, (const char*)at->residual->sum + at->row * at->residual->sum_pitch, i);
  return Load(c->dtype, (const char*)c->x + at->row * c->x_pitch, i);
}
static inline double DyAt(const Site* at, uint32_t i) {
  return Load(at->call->dtype, (const char*)at->call->dy + at->row * at->call->dy_pitch, i);
}
static inline double GainAt(const Site* at, uint32_t i) {
  return (at->norm->plus_one ? 1 : 0) + Load(Wide(at->call->dtype), at->call->params[0], i);
}
static inline double BiasAt(const Site* at, uint32_t i) {
  return at->norm->bias ? Load(Wide(at->call->dtype), at->call->params[1], i) : 0;
}
static inline void AddTo(const Site* at, int param, uint32_t i, double value) {
  const uint32_t type = Wide(at->call->dtype);
  void* to = at->call->dparams[param];
  Store(type, to, i, Load(type, to, i) + Rounded(type, value));
}
static inline int IsTraining(const Site* at) { return (at->call->flags & PLUMB_CALL_TRAIN) != 0; }
static inline int IsAdding(const Site* at) {
  return (at->call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
}

/* -- The norm ---------------------------------------------------------------------------------- */

/* The mean is kept in two numbers, because one float has too few digits if it is large. */
static void ForwardGroup(Site* at) {
  const plumb_norm_call* c = at->call;
  const uint32_t wide = Wide(c->dtype), group = at->begin / (at->end - at->begin);
  const double count = at->end - at->begin;
  void* y = (char*)c->y + at->row * c->y_pitch;
  double sum = 0, squares = 0, variance;
  for (uint32_t i = at->begin; i < at->end; ++i) sum += XAt(at, i);
  at->mean = at->norm->rms ? 0 : sum / count;
  for (uint32_t i = at->begin; i < at->end; ++i) {
    const double d = XAt(at, i) - at->mean;
    squares += SPOIL_SQUARE(at, i, d * d);
  }
  variance = SPOIL_VARIANCE(at, squares / count);
  at->r = 1 / sqrt(variance + at->norm->eps);
  at->r = SPOIL_R(at, variance, at->r);
  if (c->saved != NULL) {
    void* saved = (char*)c->saved + at->row * c->saved_pitch;
    const double high = Rounded(wide, at->mean);
    Store(wide, saved, 3 * group, high);
    Store(wide, saved, 3 * group + 1, at->mean - high);
    Store(wide, saved, 3 * group + 2, SPOIL_SAVED_R(at, variance, at->r));
  }
  for (uint32_t i = at->begin; i < at->end; ++i) {
    const double h = (XAt(at, i) - at->mean) * at->r;
    Store(c->dtype, y, i, SPOIL_Y(at, i, h, h * GainAt(at, i) + BiasAt(at, i)));
  }
}

static void BackwardGroup(Site* at) {
  const plumb_norm_call* c = at->call;
  const uint32_t wide = Wide(c->dtype), group = at->begin / (at->end - at->begin);
  const double count = at->end - at->begin;
  const void* saved = (const char*)c->saved + at->row * c->saved_pitch;
  const plumb_residual_call* residual = at->residual;
  void* dx = (char*)c->dx + at->row * c->dx_pitch;
  double sum_u = 0, sum_uh = 0;
  at->mean = Load(wide, saved, 3 * group) + Load(wide, saved, 3 * group + 1);
  at->r = Load(wide, saved, 3 * group + 2);
  for (uint32_t i = at->begin; i < at->end; ++i) {
    const double u = DyAt(at, i) * SPOIL_GAIN_BACKWARD(at, i, GainAt(at, i));
    sum_u += u;
    sum_uh += u * (XAt(at, i) - at->mean) * at->r;
  }
  at->mean_u = SPOIL_MEAN_U(at, at->norm->rms ? 0 : sum_u / count);
  at->mean_uh = SPOIL_MEAN_UH(at, sum_uh / count);
  for (uint32_t i = at->begin; i < at->end; ++i) {
    const double h = (XAt(at, i) - at->mean) * at->r, dy = DyAt(at, i);
    const double u = dy * SPOIL_GAIN_BACKWARD(at, i, GainAt(at, i));
    double d = Rounded(wide, at->r * (u - at->mean_u - h * at->mean_uh));
    AddTo(at, 0, i, SPOIL_DWEIGHT(at, i, dy * h));
    if (at->norm->bias) AddTo(at, 1, i, SPOIL_DBIAS(at, i, dy));
    if (IsAdding(at)) d += Load(c->dtype, dx, i);
    if (residual != NULL && residual->dsum != NULL)
      d += Load(c->dtype, (const char*)residual->dsum + at->row * residual->dsum_pitch, i);
    Store(c->dtype, dx, i, SPOIL_DX(at, i, h, d));
  }
}

static int IsOffered(uint32_t type) {
  return type == PLUMB_DTYPE_F32 || type == PLUMB_DTYPE_BF16 || type == PLUMB_DTYPE_F64;
}

static plumb_status Run(int backward, const plumb_norm_instance* norm, const plumb_norm_call* call,
                        const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  const uint32_t size = norm->dim / norm->groups;
  if (!IsOffered(call->dtype)) return PLUMB_STATUS_UNIMPLEMENTED;
  for (int64_t row = r0; row < r1; ++row) {
    if (residual != NULL && !backward) {
      void* sum = (char*)residual->sum + row * residual->sum_pitch;
      for (uint32_t i = 0; i < norm->dim; ++i)
        Store(call->dtype, sum, i,
              Load(call->dtype, (const char*)call->x + row * call->x_pitch, i) +
                  Load(call->dtype, (const char*)residual->res + row * residual->res_pitch, i));
    }
    for (uint32_t begin = 0; begin < norm->dim; begin += size) {
      Site at = {norm, call, residual, r0, r1, row, begin, begin + size, 0, 0, 0, 0};
      backward ? BackwardGroup(&at) : ForwardGroup(&at);
    }
  }
  return PLUMB_OK;
}

NORM_UNUSED static plumb_status BaseForward(const plumb_norm_instance* norm,
                                           const plumb_norm_call* call, int64_t r0, int64_t r1) {
  return Run(0, norm, call, NULL, r0, r1);
}
NORM_UNUSED static plumb_status BaseBackward(const plumb_norm_instance* norm,
                                            const plumb_norm_call* call, int64_t r0, int64_t r1) {
  return Run(1, norm, call, NULL, r0, r1);
}
NORM_UNUSED static plumb_status BaseResidualForward(const plumb_norm_instance* norm,
                                                   const plumb_norm_call* call,
                                                   const plumb_residual_call* residual, int64_t r0,
                                                   int64_t r1) {
  return Run(0, norm, call, residual, r0, r1);
}
NORM_UNUSED static plumb_status BaseResidualBackward(const plumb_norm_instance* norm,
                                                    const plumb_norm_call* call,
                                                    const plumb_residual_call* residual, int64_t r0,
                                                    int64_t r1) {
  return Run(1, norm, call, residual, r0, r1);
}

/* -- Instances --------------------------------------------------------------------------------- */

static const char* const the_kinds[] = {"layer", "rms", NULL};
static const plumb_attr_def the_attributes[kAttributes] = {
    {"eps", NORM_ATTRIBUTE_DOC, PLUMB_ATTR_F64, 0, 1e-12, NORM_EPS_MAX, {1e-5, 0, NULL}, NULL},
    {"kind", "layer: around the mean; rms: around 0.", PLUMB_ATTR_ENUM, 0, 0, 0, {0, 0, "layer"}, the_kinds},
    {"groups", "Pieces of a row that are normalized by themselves.", PLUMB_ATTR_I64, 0, 1, 64, {0, 1, NULL}, NULL},
    {"bias", "Adds a bias.", PLUMB_ATTR_BOOL, 0, 0, 1, {0, 1, NULL}, NULL},
    {"plus_one", "The gain is 1 + weight.", PLUMB_ATTR_BOOL, 0, 0, 1, {0, 0, NULL}, NULL},
};

NORM_UNUSED static plumb_status BaseCreate(const plumb_host* host, uint32_t dim,
                                          const plumb_attr_value* values, plumb_norm_instance** out,
                                          char* err, size_t cap) {
  plumb_norm_instance* norm;
  const double eps = values[kEps].f;
  const int64_t groups = values[kGroups].i;
  (void)host;
  if (dim % groups != 0) { /* the host has checked the ranges */
    if (cap > 0) snprintf(err, cap, "groups must divide dim %u", dim);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->dim = dim;
  norm->groups = (uint32_t)groups;
  norm->eps = eps;
  norm->rms = strcmp(values[kKind].s, "rms") == 0;
  norm->bias = values[kBias].i != 0;
  norm->plus_one = values[kPlusOne].i != 0;
  norm->kind = values[kKind].s;
  norm->values = values;
  for (int i = 0; i < 2; ++i) {
    norm->params[i].name = i == 0 ? "weight" : "bias";
    norm->params[i].doc = i == 0 ? "The gain." : "The bias.";
    norm->params[i].ndim = 1;
    norm->params[i].dims[0] = dim;
    norm->params[i].lr_scale = 1;
  }
  norm->params[0].init = norm->plus_one ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES;
  norm->params[0].offset = norm->plus_one ? 1 : 0;
  *out = norm;
  return PLUMB_OK;
}

NORM_UNUSED static void BaseDestroy(plumb_norm_instance* norm) { free(norm); }

NORM_UNUSED static plumb_status BaseLayout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = norm->bias ? 2 : 1;
  out->params = norm->params;
  out->saved_per_row = 3 * norm->groups;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

/* -- The table --------------------------------------------------------------------------------- */

static const plumb_norm_residual the_residual = {sizeof(plumb_norm_residual), 0, NORM_RESIDUAL_FORWARD,
                                                 NORM_RESIDUAL_BACKWARD};

static const void* GetExtension(const char* id) {
  return strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &the_residual : NULL;
}

NORM_NOTE

static const plumb_norm_plugin base_norm = {
    sizeof(plumb_norm_plugin),
    0,
    NORM_ID,
    "Base norm",
    NORM_VERSION,
    "Example",
    "Apache-2.0",
    NORM_DOC,
    NORM_FLAGS,
    PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    kAttributes,
    sizeof(plumb_attr_def),
    the_attributes,
    NULL,
    NORM_CREATE,
    NORM_DESTROY,
    NORM_LAYOUT,
    NORM_FORWARD,
    NORM_BACKWARD,
    NULL,
    NULL,
    NULL,
    NORM_EXTENSION,
};

#ifndef NORM_HAS_ENTRY_OF_ITS_OWN
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &base_norm : NULL;
}
#endif

#endif /* PLUMB_TESTS_CHECK_MUTANTS_NORM_H_ */
