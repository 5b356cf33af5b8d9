/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of instances: data that is kept, shared, leaked or left behind. */
#include "many.h"
#define SPOIL_R SpoilR
#define NORM_CREATE SpoilCreate
#define NORM_LAYOUT SpoilLayout
#define NORM_FORWARD SpoilForward
#define NORM_BACKWARD SpoilBackward
#include "operand.h"
#include "norm.h"

#include <fenv.h>

static int last_is_rms;     /* 159 */
static float lane[1 << 16]; /* 161 */
static plumb_tensor_def shared_params[2];

/* Returns r of a norm of the other kind. */
static double OtherR(const Site* at, double variance) {
  double sum = 0, other;
  for (uint32_t i = at->begin; i < at->end; ++i) sum += XAt(at, i);
  sum /= at->end - at->begin;
  other = at->norm->rms ? fmax(0, variance - sum * sum) : variance + sum * sum;
  return 1 / sqrt(other + at->norm->eps);
}

static double SpoilR(const Site* at, double variance, double r) {
  const plumb_norm_instance* norm = at->norm;
  /* 156: kind rms: every call compares the string again that create() received. */
  if (MUTANT == 156 && (strcmp(norm->kind, "rms") == 0) != norm->rms) return OtherR(at, variance);
  /* 159: two live instances of two kinds: the kind is a global of the library, which the last create() has set. */
  if (MUTANT == 159 && last_is_rms != norm->rms) return OtherR(at, variance);
  return r;
}

static plumb_status SpoilCreate(const plumb_host* host, uint32_t dim,
                                const plumb_attr_value* values, plumb_norm_instance** out,
                                char* err, size_t cap) {
  plumb_norm_instance* norm = NULL;
  char words[160] = "";
  const plumb_status status = BaseCreate(host, dim, values, &norm, words, sizeof(words));
  if (status != PLUMB_OK) {
    switch (MUTANT) {
      /* 158: groups that do not divide dim: the instance is created first, and not destroyed when groups is refused. */
      case 158: {
        plumb_norm_instance* made = NULL;
        plumb_attr_value one_group[kAttributes];
        memcpy(one_group, values, sizeof(one_group));
        one_group[kGroups].i = 1;
        BaseCreate(host, dim, one_group, &made, NULL, 0);
        break;
      }
      /* 163: a refused combination: *out becomes NULL. */
      case 163:
        *out = NULL;
        break;
      /* 164: a refusal with a small buffer for the text: strcpy. */
      case 164:
        if (err != NULL && cap > 0) return strcpy(err, words), status;
        break;
      /* 165: a refusal to a host that wants no text: the NUL is written to NULL. */
      case 165:
        err[0] = '\0';
        break;
      default:
        break;
    }
    if (err != NULL && cap > 0) snprintf(err, cap, "%s", words);
    return status;
  }
  if (MUTANT == 159) last_is_rms = norm->rms;
  /* 166: two live instances of two dims: the layout's tensors are static, and both show those of the last create(). */
  if (MUTANT == 166) memcpy(shared_params, norm->params, sizeof(shared_params));
  *out = norm;
  return PLUMB_OK;
}

static plumb_status SpoilLayout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  const plumb_status status = BaseLayout(norm, out);
  if (MUTANT == 166) out->params = shared_params;
  return status;
}

/* Normalizes f32 rows of x through `lane`. */
static void ThroughLane(const plumb_norm_instance* norm, const plumb_norm_call* call, int64_t r0,
                        int64_t r1) {
  for (int64_t row = r0; row < r1; ++row) {
    plumb_norm_call copy = CopyOfCall(call);
    memcpy(lane, PLUMB_CONST_ROW(float, call->x, call->x_pitch, row), norm->dim * sizeof(float));
    copy.x = (const char*)lane - row * call->x_pitch;
    BaseForward(norm, &copy, row, row + 1);
  }
}

static plumb_status SpoilForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                 int64_t r0, int64_t r1) {
  const uint32_t dim = norm->dim;
  /* 161: several threads in f32, dim > 512: rows go through one static buffer. */
  if (MUTANT == 161 && call->dtype == PLUMB_DTYPE_F32 && dim > 512 && dim < (1 << 16))
    return ThroughLane(norm, call, r0, r1), PLUMB_OK;
  /* 169: an empty range: the rounding mode is set and not restored on this path. */
  if (MUTANT == 169 && r0 == r1) fesetround(FE_UPWARD);
  /* 170: rows == 0: returns an error. */
  if (MUTANT == 170 && call->rows == 0) return PLUMB_STATUS_INVALID_ARGUMENT;
  /* 171: an element type that is not offered: returns PLUMB_OK and does nothing. */
  if (MUTANT == 171 && !IsOffered(call->dtype)) return PLUMB_OK;
  return BaseForward(norm, call, r0, r1);
}

static plumb_status SpoilBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  /* 172: backward of more than 128 elements: a temporary of a row is allocated and freed. */
  if (MUTANT == 172 && norm->dim > 128 && r0 < r1) {
    volatile float* row = (volatile float*)malloc(norm->dim * sizeof(float));
    if (row == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
    row[0] = 0;
    free((void*)(uintptr_t)row);
  }
  return BaseBackward(norm, call, r0, r1);
}

#define LIST(X) X(156, R4) X(158, R4) X(159, R4) X(161, R1) \
  X(163, M2) X(164, R4) X(165, R4) X(166, R4) X(169, N4) X(170, R7) \
  X(171, M5) X(172, R1)
MANY(LIST)
