/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of a norm's values (checks N1 to N20). MUTANT_NAME selects one; mutants.txt lists
   them. */

#ifdef MUTANT_n1_eps_twice
/* Claims to be rms_norm, and adds eps twice, in backward as well, so that the gradient is
   consistent. */
#define BASE_ID "rms_norm"
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status == PLUMB_OK) (*out)->eps *= 2;
  return status;
}
#endif

#ifdef MUTANT_n2_gain_off_by_one_percent
/* The gradient of the gain is one percent too large. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

#define ADD_ONE_PERCENT(NAME, T, A, LOAD)                                                \
  static void AddOnePercent##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) { \
    A* dweight = (A*)call->dparams[0];                                                   \
    for (int64_t row = r0; row < r1; ++row) {                                            \
      const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, row);                      \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, row);                   \
      const double r = *PLUMB_CONST_ROW(A, call->saved, call->saved_pitch, row);         \
      for (uint32_t i = 0; i < call->dim; ++i)                                           \
        dweight[i] += (A)(0.01 * LOAD(dy[i]) * LOAD(x[i]) * r);                          \
    }                                                                                    \
  }
ADD_ONE_PERCENT(F32, float, float, BaseFromF32)
ADD_ONE_PERCENT(Bf16, plumb_bf16, float, BaseFromBf16)
ADD_ONE_PERCENT(F64, double, double, BaseDouble)

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  /* This runs first, because dx may be dy and overwrite it. */
  if (call->dtype == PLUMB_DTYPE_F32) AddOnePercentF32(call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_BF16) AddOnePercentBf16(call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_F64) AddOnePercentF64(call, r0, r1);
  return BaseBackward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n2_gain_off_without_f64
/* Offers no f64 for the gradient check, and forgets the last element of the row in the gradient. */
#define BASE_DTYPES PLUMB_DTYPE_F32
#define BASE_FORWARD SpoiltForward
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  return BaseForward(instance, call, r0, r1);
}

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  float* last = (float*)call->dparams[0] + instance->dim - 1;
  const float before = *last;
  plumb_status status;
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  status = BaseBackward(instance, call, r0, r1);
  *last = before;
  return status;
}
#endif

#ifdef MUTANT_n3_overwrites_always
/* Ignores PLUMB_CALL_DX_ACCUMULATE. */
#define BASE_BACKWARD SpoiltBackward
#include "call_copy.h"
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  plumb_norm_call spoilt = CopyOfCall(call);
  spoilt.flags &= ~(uint32_t)PLUMB_CALL_DX_ACCUMULATE;
  return BaseBackward(instance, &spoilt, r0, r1);
}
#endif

#ifdef MUTANT_n3_rounds_once
/* Adds the gradient to dx before rounding, like a fused multiply-add, which differs from the
 * bits of two steps. In f32. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* n, const plumb_norm_call* c,
                                   int64_t r0, int64_t r1) {
  const int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  if (c->dtype != PLUMB_DTYPE_F32 || !add) return BaseBackward(n, c, r0, r1);
  const float* weight = (const float*)c->params[0];
  float* dweight = (float*)c->dparams[0];
  for (int64_t row = r0; row < r1; ++row) {
    const float* x = PLUMB_CONST_ROW(float, c->x, c->x_pitch, row);
    const float* dy = PLUMB_CONST_ROW(float, c->dy, c->dy_pitch, row);
    float* dx = PLUMB_ROW(float, c->dx, c->dx_pitch, row);
    const double r = *PLUMB_CONST_ROW(float, c->saved, c->saved_pitch, row);
    double mean = 0;
    for (uint32_t i = 0; i < n->dim; ++i) mean += (double)dy[i] * weight[i] * x[i] * r / n->dim;
    for (uint32_t i = 0; i < n->dim; ++i) {
      dweight[i] += (float)(dy[i] * (x[i] * r));
      dx[i] = (float)(dx[i] + r * ((double)dy[i] * weight[i] - x[i] * r * mean));
    }
  }
  return PLUMB_OK;
}
#endif

#ifdef MUTANT_n3_overwrites_parameters
/* Overwrites the gradient of the gain instead of adding to it. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  const size_t size = call->dtype == PLUMB_DTYPE_F64 ? sizeof(double) : sizeof(float);
  if (r0 < r1) memset(call->dparams[0], 0, instance->dim * size);
  return BaseBackward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n4_every_other_row
/* Sums every second row of a range from the last element to the first, as if rows were taken in
 * pairs, so that a row's last bit depends on the start of its range. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"
#include "sums_from_behind.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_status status = BaseForward(instance, call, r0, r0); /* checks the element type */
  for (int64_t row = r0; row < r1 && status == PLUMB_OK; ++row) {
    status = (row - r0) % 2 == 0 ? BaseForward(instance, call, row, row + 1)
                                 : ForwardFromBehind(instance, call, row, row + 1);
  }
  return status;
}
#endif

#ifdef MUTANT_n5_order_of_the_clock
/* Adds the rows' contributions to the gain's gradient in an order that depends on the clock, as
 * if threads added them in the order in which they finish. Only in calls of more rows than one
 * thread would take. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

#include <time.h>

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  struct timespec now;
  plumb_status status = BaseBackward(instance, call, r0, r0); /* checks the element type */
  if (call->rows <= 32) return BaseBackward(instance, call, r0, r1);
  timespec_get(&now, TIME_UTC);
  if (((uint32_t)now.tv_nsec * 2654435761u) >> 31 != 0) return BaseBackward(instance, call, r0, r1);
  for (int64_t row = r1; row > r0 && status == PLUMB_OK; --row) {
    status = BaseBackward(instance, call, row - 1, row);
  }
  return status;
}
#endif

#ifdef MUTANT_n6_weights_in_a_global
/* Keeps the weights of the running call in a global. Threads that share a call do not notice,
 * but two calls do. It is cleared afterwards. */
#define BASE_FORWARD SpoiltForward
#include "call_copy.h"
#include "base_norm.h"

#include <stdatomic.h>

static _Atomic(const void*) current_weights;
static atomic_int running;

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_norm_call spoilt = CopyOfCall(call);
  plumb_status status = BaseForward(instance, call, r0, r0); /* checks the element type */
  const void* params[1];
  spoilt.params = params;
  ++running;
  current_weights = call->params[0];
  for (int64_t row = r0; row < r1 && status == PLUMB_OK; ++row) {
    params[0] = current_weights;
    if (params[0] == NULL) params[0] = call->params[0];
    status = BaseForward(instance, &spoilt, row, row + 1);
  }
  if (--running == 0) current_weights = NULL;
  return status;
}
#endif

#ifdef MUTANT_n7_reads_past_the_end
/* Reads the element after each row and does not use it. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const size_t size = call->dtype == PLUMB_DTYPE_F64 ? 8 : call->dtype == PLUMB_DTYPE_F32 ? 4 : 2;
  for (int64_t row = r0; row < r1; ++row) {
    (void)*(const volatile char*)(PLUMB_CONST_ROW(char, call->x, call->x_pitch, row) +
                                  instance->dim * size);
  }
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n7_writes_between_rows
/* Writes one element too many if there is space after a row. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  const size_t size = call->dtype == PLUMB_DTYPE_F64 ? 8 : call->dtype == PLUMB_DTYPE_F32 ? 4 : 2;
  const size_t used = instance->dim * size;
  for (int64_t row = r0; row < r1 && row + 1 < call->rows; ++row) {
    if ((size_t)call->dx_pitch < used + size) continue;
    memset(PLUMB_ROW(char, call->dx, call->dx_pitch, row) + used, 0, size);
  }
  return BaseBackward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n8_sums_aligned_rows_otherwise
/* Adds in another order if rows are declared to be aligned. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"
#include "sums_from_behind.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->flags & PLUMB_CALL_ALIGNED64) return ForwardFromBehind(instance, call, r0, r1);
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n9_forgets_the_last_of_31
/* Skips the last element of a row of 31, like vector code with an error for one remainder.
 */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (instance->dim != 31 || call->dtype != PLUMB_DTYPE_F32) return status;
  for (int64_t row = r0; row < r1; ++row) {
    PLUMB_ROW(float, call->y, call->y_pitch, row)[30] = 0;
  }
  return status;
}
#endif

#ifdef MUTANT_n9_fails_without_rows
/* Returns an error for a call without rows. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->rows == 0) return PLUMB_STATUS_INVALID_ARGUMENT;
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n10_evaluates_otherwise
/* Rounds differently in evaluation and in training. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_DTYPE_F32 ||
      (call->flags & PLUMB_CALL_TRAIN) != 0) {
    return status;
  }
  for (int64_t r = r0; r < r1; ++r) {
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    y[0] = nextafterf(y[0], 2 * y[0]);
  }
  return status;
}
#endif

#ifdef MUTANT_n10_writes_buffers
/* Updates a running statistic in forward(), which several threads may run. */
#define CROSS_BEFORE_FORWARD                                                             \
  if (call->call_saved != NULL && call->dtype == PLUMB_DTYPE_F32 && r0 == 0 && r1 > 0) { \
    float* mean = (float*)call->buffers[0];                                              \
    mean[0] = nextafterf(mean[0], 1);                                                    \
  }
#include "base_cross_norm.h"
#endif

#ifdef MUTANT_n11_clears_output_first
/* Clears y before it reads x, and declares that y may be x. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F32) {
    for (int64_t r = r0; r < r1; ++r) {
      memset(PLUMB_ROW(float, call->y, call->y_pitch, r), 0, sizeof(float) * instance->dim);
    }
  }
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n11_clears_gradient_first
/* Clears dx before it reads dy, and declares that dx may be dy. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F32 && (call->flags & PLUMB_CALL_DX_ACCUMULATE) == 0) {
    for (int64_t r = r0; r < r1; ++r) {
      memset(PLUMB_ROW(float, call->dx, call->dx_pitch, r), 0, sizeof(float) * instance->dim);
    }
  }
  return BaseBackward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n12_inexact_bf16
/* Has an error of five percent in bf16. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_DTYPE_BF16) return status;
  for (int64_t r = r0; r < r1; ++r) {
    plumb_bf16* y = PLUMB_ROW(plumb_bf16, call->y, call->y_pitch, r);
    for (uint32_t i = 0; i < instance->dim; ++i) {
      y[i] = plumb_bf16_from_float(plumb_bf16_to_float(y[i]) * 1.05f);
    }
  }
  return status;
}
#endif

#ifdef MUTANT_n12_takes_any_type
/* Returns OK for an element type that it does not offer, and does nothing. */
#define BASE_DTYPES (PLUMB_DTYPE_F32 | PLUMB_DTYPE_F64)
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if ((call->dtype & BASE_DTYPES) == 0) return PLUMB_OK;
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n13_divides_by_zero
/* Adds nothing to the mean square, so that a row of zeros is divided by zero. */
#define BASE_EPS_DEFAULT 0
#include "base_norm.h"
#endif

#ifdef MUTANT_n13_claims_too_much
/* Declares that adding a number to x changes nothing, and does not subtract the mean. */
#define BASE_FLAGS                                                         \
  (PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED | \
   PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT)
#include "base_norm.h"
#endif

#ifdef MUTANT_n13_counts_on_denormals
/* Protects a row of zeros from a division by zero with a constant that is itself zero if
 * denormals are flushed. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const volatile float least = 1e-40f;
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_DTYPE_F32) return status;
  for (int64_t r = r0; r < r1; ++r) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    float largest = least;
    for (uint32_t i = 0; i < instance->dim; ++i) largest = fmaxf(largest, fabsf(x[i]));
    for (uint32_t i = 0; i < instance->dim; ++i) y[i] *= largest / largest;
  }
  return PLUMB_OK;
}
#endif

#ifdef MUTANT_n14_mixes_rows
/* Adds zero times the previous row: nothing for finite numbers, but NaN for NaN. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_DTYPE_F32) return status;
  for (int64_t r = r1 - 1; r > r0; --r) {
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    const float* before = PLUMB_CONST_ROW(float, call->y, call->y_pitch, r - 1);
    for (uint32_t i = 0; i < instance->dim; ++i) y[i] += 0.0f * before[i];
  }
  return status;
}
#endif

#ifdef MUTANT_n15_slow_on_denormals
/* Takes many times as long for a row that begins with a denormal number. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (int64_t r = r0; r < r1 && call->dtype == PLUMB_DTYPE_F32; ++r) {
    uint32_t bits; /* not as a float, which may be flushed to zero */
    memcpy(&bits, PLUMB_CONST_ROW(float, call->x, call->x_pitch, r), sizeof(bits));
    if ((bits & 0x7f800000u) != 0 || (bits & 0x007fffffu) == 0) continue;
    for (volatile uint32_t i = 0; i < 100 * instance->dim; i = i + 1) {
    }
  }
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_n16_forgets_spread
/* Forgets the distance of the means when two single rows are merged; the host's pieces are
   longer. */
#define CROSS_SPREAD(na, nb, term) ((na) == 1 && (nb) == 1 ? 0 : (term))
#include "base_cross_norm.h"
#endif

#ifdef MUTANT_n17_zero_by_its_bits
/* Treats only zero bits as zero and divides by other values: by zero, if a denormal number is
 * flushed. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_DTYPE_F32) return status;
  for (int64_t r = r0; r < r1; ++r) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    for (uint32_t i = 0; i < instance->dim; ++i) {
      uint32_t bits;
      memcpy(&bits, &x[i], sizeof(bits));
      if ((bits & 0x7fffffffu) != 0 && isfinite(x[i])) y[i] *= x[i] / x[i];
    }
  }
  return PLUMB_OK;
}
#endif

#ifdef MUTANT_n17_unlike_zero
/* Gives the smallest denormal number the same weight as others, if denormals are not flushed. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(instance, call, r0, r1);
  if (status != PLUMB_OK || call->dtype != PLUMB_DTYPE_F32) return status;
  for (int64_t r = r0; r < r1; ++r) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    float* y = PLUMB_ROW(float, call->y, call->y_pitch, r);
    for (uint32_t i = 0; i < instance->dim; ++i) {
      if (x[i] != 0 && fabsf(x[i]) < 1e-38f) y[i] = 1;
    }
  }
  return PLUMB_OK;
}
#endif

#ifdef MUTANT_n18_adds_to_dx2
/* Accumulates into dx2 if the host requests that for dx. */
#include "plumb/norm_plugin.h"
static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1);
#define Backward(norm, call, r0, r1) HonestBackward(norm, call, r0, r1)
#include "tests/sdk/v1_1/old_names.h"
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef Backward

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  if ((call->flags & PLUMB_CALL_DX_ACCUMULATE) == 0 || call->dtype != PLUMB_DTYPE_F32) {
    return HonestBackward(norm, call, r0, r1);
  }
  for (int64_t r = r0; r < r1; ++r) {
    float* dx2 = PLUMB_ROW(float, call->dx2, call->dx2_pitch, r);
    float before[16384];
    for (uint32_t i = 0; i < call->dim && i < 16384; ++i) before[i] = dx2[i];
    const plumb_status status = HonestBackward(norm, call, r, r + 1);
    if (status != PLUMB_OK) return status;
    for (uint32_t i = 0; i < call->dim && i < 16384; ++i) dx2[i] += before[i];
  }
  return PLUMB_OK;
}
#endif

#ifdef MUTANT_n18_takes_one_tensor_for_one_input
/* If x2 is x, dx gets the gradients of both inputs, and dx2 zeros. */
#include "plumb/norm_plugin.h"
static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1);
#define Backward(norm, call, r0, r1) HonestBackward(norm, call, r0, r1)
#include "tests/sdk/v1_1/old_names.h"
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef Backward

#define MOVE_ROWS(NAME, REAL)                                                   \
  static void Move##NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) { \
    for (int64_t r = r0; r < r1; ++r) {                                         \
      REAL* dx = PLUMB_ROW(REAL, call->dx, call->dx_pitch, r);                  \
      REAL* dx2 = PLUMB_ROW(REAL, call->dx2, call->dx2_pitch, r);               \
      for (uint32_t i = 0; i < call->dim; ++i) {                                \
        dx[i] += dx2[i];                                                        \
        dx2[i] = 0;                                                             \
      }                                                                         \
    }                                                                           \
  }
MOVE_ROWS(F32, float)
MOVE_ROWS(F64, double)

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const plumb_status status = HonestBackward(norm, call, r0, r1);
  if (status != PLUMB_OK || call->x2 != call->x) return status;
  if (call->dtype == PLUMB_DTYPE_F32) MoveF32(call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_F64) MoveF64(call, r0, r1);
  return PLUMB_OK;
}
#endif

#ifdef MUTANT_n19_counts_heads_from_the_range
/* Treats the first row of a range as a row of head 0. */
#include "call_copy.h"
#include "graceful_parts.h"

/* Returns the call without the rows before r0. */
static plumb_norm_call From(const plumb_norm_call* call, int64_t r0) {
  plumb_norm_call mine = CopyOfCall(call);
  if (mine.x != NULL) mine.x = (const char*)mine.x + r0 * mine.x_pitch;
  if (mine.y != NULL) mine.y = (char*)mine.y + r0 * mine.y_pitch;
  if (mine.dy != NULL) mine.dy = (const char*)mine.dy + r0 * mine.dy_pitch;
  if (mine.dx != NULL) mine.dx = (char*)mine.dx + r0 * mine.dx_pitch;
  return mine;
}

static int IsSpoilt(const plumb_norm_call* call) {
  return !PLUMB_HAS(plumb_norm_call, call, context) || call->context == NULL;
}

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  const plumb_norm_call mine = From(call, r0);
  return IsSpoilt(call) ? HonestForward(norm, &mine, 0, r1 - r0)
                        : HonestForward(norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const plumb_norm_call mine = From(call, r0);
  return IsSpoilt(call) ? HonestBackward(norm, &mine, 0, r1 - r0)
                        : HonestBackward(norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  return HonestLayout(norm, out);
}
#endif

#ifdef MUTANT_n19_tells_no_heads
/* Has a gain per head, although the layout declares that all rows are alike. */
#include "graceful_parts.h"

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  return HonestForward(norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return HonestBackward(norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  const plumb_status status = HonestLayout(norm, out);
  if (PLUMB_HAS(plumb_norm_layout, out, heads)) out->heads = 0;
  return status;
}
#endif

#ifdef MUTANT_n20_uses_positions_unasked
/* Reads positions if the host has them, although the layout does not request them. */
#include "graceful_parts.h"

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  return HonestForward(norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return HonestBackward(norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  const plumb_status status = HonestLayout(norm, out);
  if (PLUMB_HAS(plumb_norm_layout, out, context_wants)) out->context_wants = 0;
  return status;
}
#endif

#ifdef MUTANT_n20_positions_of_rows
/* Reads positions per row, even in a call of several rows per token. */
#include "call_copy.h"
#include "graceful_parts.h"

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  if (!PLUMB_HAS(plumb_norm_call, call, context) || call->context == NULL) {
    return HonestForward(norm, call, r0, r1);
  }
  plumb_norm_context context = *call->context;
  plumb_norm_call mine = CopyOfCall(call);
  context.rows_per_token = 1;
  mine.context = &context;
  return HonestForward(norm, &mine, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return HonestBackward(norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  return HonestLayout(norm, out);
}
#endif

#ifdef MUTANT_n20_counts_tokens_from_the_range
/* Treats the first token of a range as the first token of the call. */
#include "call_copy.h"
#include "graceful_parts.h"

typedef plumb_status (*RowFunction)(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                    int64_t r0, int64_t r1);

static plumb_status Spoil(RowFunction honest, const plumb_norm_instance* norm,
                          const plumb_norm_call* call, int64_t r0, int64_t r1) {
  if (!PLUMB_HAS(plumb_norm_call, call, context) || call->context == NULL ||
      call->context->positions == NULL) {
    return honest(norm, call, r0, r1);
  }
  plumb_norm_context context = *call->context;
  plumb_norm_call mine = CopyOfCall(call);
  context.positions -= r0 / context.rows_per_token;
  mine.context = &context;
  return honest(norm, &mine, r0, r1);
}

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  return Spoil(HonestForward, norm, call, r0, r1);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  return Spoil(HonestBackward, norm, call, r0, r1);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  return HonestLayout(norm, out);
}
#endif
