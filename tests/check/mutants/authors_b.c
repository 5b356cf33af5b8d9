/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants by authors who knew the contract and not the checker. The condition of each is next to
 * its number. */
#define _GNU_SOURCE
#include "many.h"

#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define SPOIL_SQUARE SpoilSquare
#define SPOIL_VARIANCE SpoilVariance
#define SPOIL_R SpoilR
#define SPOIL_SAVED_R SpoilSavedR
#define SPOIL_Y SpoilY
#define SPOIL_DX SpoilDx
#define SPOIL_DWEIGHT SpoilDweight
#define NORM_CREATE SpoilCreate
#define NORM_DESTROY SpoilDestroy
#define NORM_LAYOUT SpoilLayout
#define NORM_FORWARD SpoilForward
#define NORM_BACKWARD SpoilBackward
#define NORM_RESIDUAL_FORWARD SpoilResidualForward
#define NORM_EXTENSION SpoilExtension
#include "norm.h"
#include "operand.h"

static uint32_t ToBits(double value) {
  const float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof(bits));
  return bits;
}

static double FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return (double)value;
}

static const plumb_host* the_host;

/* -- Numbers ----------------------------------------------------------------------------------- */

static double SpoilSquare(const Site* at, uint32_t i, double square) {
  const uint32_t dim = at->norm->dim, n = at->end - at->begin;
  const int f64 = at->call->dtype == PLUMB_DTYPE_F64;
  return square;
}

static double SpoilVariance(const Site* at, double variance) {
  const plumb_norm_call* c = at->call;
  const uint32_t dim = at->norm->dim, n = at->end - at->begin;
  const void* x = (const char*)c->x + at->row * c->x_pitch;
  const int bf16 = c->dtype == PLUMB_DTYPE_BF16;
  if (IS(211) && at->residual != NULL && bf16 && at->norm->rms) { /* the sum before it is rounded */
    double squares = 0;
    for (uint32_t i = at->begin; i < at->end; ++i) {
      const double sum = Load(c->dtype, x, i) +
                         Load(c->dtype, (const char*)at->residual->res +
                                            at->row * at->residual->res_pitch, i);
      squares += sum * sum;
    }
    return squares / n;
  }
  if (IS(238) && variance == 0) fesetround(FE_TOWARDZERO); /* a row of zeros */
  if (IS(239) && at->row + 1 < c->rows) /* the tail as a whole vector, times 0 */
    for (uint32_t i = dim; i % 8 != 0 && (i + 1) * SizeOf(c->dtype) <= (size_t)c->x_pitch; ++i)
      variance += 0 * Load(c->dtype, x, i);
  if (IS(240) && dim <= 64 && (at->row - at->r0) % 2 == 1 && c->x != c->y) /* two rows at once */
    for (uint32_t i = 0; i < dim; ++i)
      variance += 0 * Load(c->dtype, (const char*)x - c->x_pitch, i);
  if (IS(241) && (c->flags & PLUMB_CALL_ALIGNED64)) return (double)(float)variance;
  if (IS(264) && !isfinite(variance) && !isnan(variance)) signal(SIGFPE, SIG_IGN);
  if (IS(267) && isnan(variance)) the_host->log(the_host->ctx, PLUMB_LOG_WARNING, "a NaN");
  return variance;
}

static double SpoilR(const Site* at, double variance, double r) {
  const plumb_norm_call* c = at->call;
  (void)variance;
  if (IS(217) && at->row > at->r0 && c->x != c->y) /* a NaN before it in the range stays */
    for (uint32_t i = 0; i < at->norm->dim; ++i)
      if (isnan(Load(c->dtype, (const char*)c->x + (at->row - 1) * c->x_pitch, i))) return NAN;
  return r;
}

static double SpoilSavedR(const Site* at, double variance, double r) {
  (void)variance;
  return IS(242) && at->call->dtype == PLUMB_DTYPE_BF16
             ? (double)plumb_bf16_to_float(plumb_bf16_from_float((float)r))
             : r;
}

static double SpoilY(const Site* at, uint32_t i, double h, double y) {
  const uint32_t bits = ToBits(y), dim = at->norm->dim;
  if (IS(233) && at->norm->bias) /* the bias is the 64 bytes behind the weight */
    return h * GainAt(at, i) + Load(Wide(at->call->dtype), at->call->params[0],
                                    (dim + 15) / 16 * 16 + i);
  if (at->call->dtype != PLUMB_DTYPE_BF16 || y - y != 0) return y;
  if (IS(219) && !at->norm->rms && fabs(at->mean) * at->r > 1) /* a mean of bf16 */
    return (XAt(at, i) - (double)plumb_bf16_to_float(plumb_bf16_from_float((float)at->mean))) *
               at->r * GainAt(at, i) + BiasAt(at, i);
  if (IS(224) && i < dim / 16 * 16) return FromBits(bits & 0xffff0000u); /* truncated in vectors */
  return y;
}

static double SpoilDx(const Site* at, uint32_t i, double h, double dx) {
  static int calls; /* 250 */
  const plumb_norm_call* c = at->call;
  const uint32_t dim = at->norm->dim;
  const char* row = (const char*)c->dx + at->row * c->dx_pitch;
  (void)h;
  if (IS(250) && at->r1 - at->r0 == 1 && i == 0 && ++calls % 32 == 0) return dx / 2;
  if (IS(212) && at->residual != NULL && at->residual->dsum != NULL && c->dtype == PLUMB_DTYPE_F32)
    return (double)nextafterf((float)dx, 9e9f); /* rounded once */
  if (!IsAdding(at)) return dx;
  return dx;
}

static double SpoilDweight(const Site* at, uint32_t i, double d) {
  const int64_t rows = at->r1 - at->r0;
  if (IS(218) && rows > 8 && at->row - at->r0 >= rows / 8 * 8) return 0; /* after the last eight */
  if (IS(234) && at->norm->dim > 64) /* scratch is assumed to be zero */
    return d + (at->row == at->r0 ? Load(Wide(at->call->dtype), at->call->scratch, i) : 0);
  if (IS(235) && i == 0) ((double*)at->call->scratch)[rows <= at->r0 ? at->row : 0] = d;
  return d;
}

/* -- Calls ------------------------------------------------------------------------------------- */

static plumb_status SpoilForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                 int64_t r0, int64_t r1) {
  plumb_norm_call copy = CopyOfCall(call);
  const uint32_t type = call->dtype;
  plumb_status status = PLUMB_OK;
  if (IS(237) && r0 == r1) fesetround(FE_UPWARD);
  if (IS(247) && !IsOffered(type) && call->err_cap > 0) setlocale(LC_NUMERIC, "C.UTF-8");
  if (IS(222) && IsOffered(type)) { /* row * pitch in int32 */
    for (int64_t row = r0; row < r1; ++row) {
      const int32_t offset = (int32_t)((uint32_t)row * (uint32_t)call->x_pitch);
      copy.x = (const char*)call->x + (offset < 0 ? 0 : offset) - row * call->x_pitch;
      BaseForward(norm, &copy, row, row + 1);
    }
    return PLUMB_OK;
  }
  status = BaseForward(norm, call, r0, r1);
  if (status != PLUMB_OK) return status;
  for (int64_t row = r0; row < r1; ++row) {
    char* saved = (char*)call->saved + row * call->saved_pitch;
    if (IS(201) && call->saved != NULL && norm->rms) /* a third number */
      Store(Wide(type), saved, 3 * norm->groups, 1);
  }
  if (IS(229) && call->x == call->y && r1 - r0 > 4 && (r1 - r0) % 2 == 1)
    return BaseForward(norm, call, r1 - 1, r1); /* the last row is read again */
  if (IS(203) && call->x == call->y && !norm->rms && call->saved != NULL) /* saves the mean of y */
    for (int64_t row = r0; row < r1; ++row) {
      double sum = 0;
      for (uint32_t i = 0; i < norm->dim; ++i)
        sum += Load(type, (const char*)call->y + row * call->y_pitch, i) / norm->dim;
      Store(Wide(type), (char*)call->saved + row * call->saved_pitch, 0, sum);
    }
  return status;
}

static plumb_status SpoilBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_norm_call copy = CopyOfCall(call);
  if (IS(223) && IsOffered(call->dtype)) { /* row * pitch in uint32 */
    for (int64_t row = r0; row < r1; ++row) {
      copy.dx = (char*)call->dx + (int64_t)(uint32_t)(row * call->dx_pitch) - row * call->dx_pitch;
      BaseBackward(norm, &copy, row, row + 1);
    }
    return PLUMB_OK;
  }
  return BaseBackward(norm, call, r0, r1);
}

static plumb_status SpoilResidualForward(const plumb_norm_instance* norm,
                                         const plumb_norm_call* call,
                                         const plumb_residual_call* residual, int64_t r0,
                                         int64_t r1) {
  return BaseResidualForward(norm, call, residual, r0, r1);
}

/* -- Instances --------------------------------------------------------------------------------- */

static void* WaitForWork(void* nothing) {
  for (;;) pause();
  return nothing;
}

static plumb_norm_instance* by_dim[16]; /* 262, 263 */

static plumb_status SpoilCreate(const plumb_host* host, uint32_t dim,
                                const plumb_attr_value* values, plumb_norm_instance** out,
                                char* err, size_t cap) {
  static plumb_norm_instance shared;
  static char* kept;
  static size_t kept_cap;
  plumb_attr_value usual[kAttributes];
  plumb_norm_instance* norm = NULL;
  pthread_t thread;
  plumb_status status;
  the_host = host;
  memcpy(usual, values, sizeof(usual));
  if (IS(246) && strcmp(values[kKind].s, "rms") == 0) setlocale(LC_ALL, "");
  if (IS(249) && cap >= 32) kept = err, kept_cap = cap;
  if (IS(266) && dim % values[kGroups].i != 0 && dim > values[kGroups].i) {
    usual[kGroups].i = 1; /* groups that do not divide dim */
    status = BaseCreate(host, dim, usual, &norm, err, cap);
    if (norm != NULL) norm->groups = (uint32_t)values[kGroups].i;
  } else {
    status = BaseCreate(host, dim, values, &norm, err, IS(268) && cap < 40 ? 0 : cap);
  }
  if (status != PLUMB_OK) {
    if (IS(249) && err == NULL && kept != NULL) snprintf(kept, kept_cap, "refused");
    if (IS(268) && cap > 0 && cap < 40) memset(err, 'x', cap);
    if (IS(255)) free(*out = (plumb_norm_instance*)malloc(sizeof(*norm)));
    return status;
  }
  if (IS(252) && dim >= 1024 && pthread_create(&thread, NULL, WaitForWork, NULL) == 0)
    pthread_detach(thread);
  if (IS(256)) { /* built in a static one, which takes some time */
    shared = *norm;
    for (volatile int i = 0; i < 3000; i = i + 1) {
    }
    *norm = shared;
  }
  if (IS(262)) { /* a cache by dim */
    if (by_dim[dim % 16] == NULL || by_dim[dim % 16]->dim != dim) by_dim[dim % 16] = norm;
    norm->eps = by_dim[dim % 16]->eps;
  }
  *out = norm;
  return PLUMB_OK;
}

static void SpoilDestroy(plumb_norm_instance* norm) {
  if (IS(262) && by_dim[norm->dim % 16] == norm) by_dim[norm->dim % 16] = NULL;
  BaseDestroy(norm);
}

static plumb_status SpoilLayout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  BaseLayout(norm, out);
  if (IS(234) || IS(235)) out->scratch_bytes = 8 * (size_t)norm->dim, out->scratch_bytes_per_row = 8;
  if (IS(260)) out->max_chunks = 4; /* not known to an older host */
  return PLUMB_OK;
}

static const void* SpoilExtension(const char* id) { /* 261: a later revision */
  return IS(261) && strncmp(id, PLUMB_EXT_RESIDUAL, strlen(PLUMB_EXT_RESIDUAL)) == 0
             ? &the_residual
             : GetExtension(id);
}

#define LIST(X) X(0, none) X(201, N7) X(203, N8) \
  X(211, N3) X(212, N3) X(217, N4) X(218, N16) \
  X(219, N12) X(222, N8) X(223, N8) X(224, N12) \
  X(229, N8) X(233, N7) X(234, N2) X(235, N7) \
  X(237, R1) X(238, R1) X(239, N1) X(240, N4) X(241, N8) X(242, N12) X(246, R4) \
  X(247, R1) X(249, R4) X(250, R1) X(252, R4) X(255, M2) X(256, R4) X(260, M5) \
  X(261, M5) X(262, R4) X(264, R1) X(266, N7) X(267, R1) X(268, R4)
MANY(LIST)
