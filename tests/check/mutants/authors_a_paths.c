/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of a path: the fused residual, aliased operands, alignment, pitches, accumulation.
 */
#include "many.h"
#define SPOIL_SQUARE SpoilSquare
#define SPOIL_DX SpoilDx
#define SPOIL_DWEIGHT SpoilDweight
#define NORM_FORWARD SpoilForward
#define NORM_BACKWARD SpoilBackward
#define NORM_RESIDUAL_FORWARD SpoilResidualForward
#define NORM_RESIDUAL_BACKWARD SpoilResidualBackward
#include "operand.h"
#include "norm.h"

static double SpoilSquare(const Site* at, uint32_t i, double square) {
  const plumb_norm_call* c = at->call;
  const uintptr_t address = (uintptr_t)c->x + (uintptr_t)(at->row * c->x_pitch);
  /* 173: a row of x that is not aligned to 64 bytes, 32 elements or more: the elements before the first boundary are peeled, and not summed. */
  if (MUTANT == 173 && at->norm->dim >= 32 && i < (64 - address % 64) % 64 / SizeOf(c->dtype))
    return 0;
  return square;
}

static double SpoilDx(const Site* at, uint32_t i, double h, double dx) {
  const plumb_norm_call* c = at->call;
  const plumb_residual_call* residual = at->residual;
  const uint32_t dim = at->norm->dim;
  const char* row = (const char*)c->dx + at->row * c->dx_pitch;
  (void)h;
  switch (MUTANT) {
    /* 174: accumulating, range that does not begin at row 0: overwritten, because only the first range was tested. */
    case 174:
      return IsAdding(at) && at->r0 > 0 ? dx - Load(c->dtype, row, i) : dx;
    /* 175: residual, tail of dim % 16 elements: dsum is not added there. */
    case 175:
      return residual != NULL && residual->dsum != NULL && i >= dim / 16 * 16
                 ? dx - Load(c->dtype, (const char*)residual->dsum + at->row * residual->dsum_pitch,
                             i)
                 : dx;
    /* 177: residual, dsum is dx: the sum is added twice, through both names. */
    case 177:
      return residual != NULL && residual->dsum == c->dx && c->dx != NULL
                 ? dx + Load(c->dtype, row, i)
                 : dx;
    default:
      return dx;
  }
}

static double SpoilDweight(const Site* at, uint32_t i, double d) {
  /* 178: dx is dy: u = dy gain was written to dx first, so that dweight reads u instead of dy. */
  return MUTANT == 178 && at->call->dx == (void*)(uintptr_t)at->call->dy ? d * GainAt(at, i) : d;
}

static plumb_status SpoilForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                 int64_t r0, int64_t r1) {
  const uint32_t type = call->dtype;
  plumb_norm_call copy = CopyOfCall(call);
  if (!IsOffered(type)) return PLUMB_STATUS_UNIMPLEMENTED;
  /* 179: y is x, kind layer: the mean of x is subtracted from x, and again from y, which was assumed to be x still. */
  if (MUTANT == 179 && call->y == call->x && !norm->rms && norm->groups == 1) {
    for (int64_t row = r0; row < r1; ++row) {
      void* y = (char*)call->y + row * call->y_pitch;
      double sum = 0, shifted = 0;
      for (uint32_t i = 0; i < norm->dim; ++i) sum += Load(type, y, i);
      BaseForward(norm, call, row, row + 1);
      for (uint32_t i = 0; i < norm->dim; ++i) {
        shifted = Load(type, y, i) - sum / norm->dim;
        Store(type, y, i, shifted);
      }
    }
    return PLUMB_OK;
  }
  /* 181: PLUMB_CALL_ALIGNED64, dim no multiple of 64 bytes: whole vectors are stored, over the space between rows. */
  if (MUTANT == 181 && (call->flags & PLUMB_CALL_ALIGNED64) != 0) {
    const uint32_t lanes = 64 / SizeOf(type), padded = (norm->dim + lanes - 1) / lanes * lanes;
    for (int64_t row = r0; row < r1; ++row)
      for (uint32_t i = norm->dim; i < padded; ++i)
        Store(type, (char*)call->y + row * call->y_pitch, i, 0);
  }
  return BaseForward(norm, &copy, r0, r1);
}

static plumb_status SpoilBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_norm_call copy = CopyOfCall(call);
  /* 182: saved has a pitch larger than its numbers: backward treats its rows as adjacent. */
  if (MUTANT == 182) copy.saved_pitch = 3 * norm->groups * SizeOf(Wide(call->dtype));
  return BaseBackward(norm, &copy, r0, r1);
}

static plumb_status SpoilResidualForward(const plumb_norm_instance* norm,
                                         const plumb_norm_call* call,
                                         const plumb_residual_call* residual, int64_t r0,
                                         int64_t r1) {
  plumb_residual_call copy = *residual;
  const uint32_t type = call->dtype;
  if (!IsOffered(type)) return PLUMB_STATUS_UNIMPLEMENTED;
  /* 183: residual, sum is res: x is copied to sum, and res is added, which is x by then. */
  if (MUTANT == 183 && residual->sum == (void*)(uintptr_t)residual->res) {
    copy.res = call->x;
    copy.res_pitch = call->x_pitch;
  }
  /* 184: residual, evaluation: the sum goes to y, in which the norm works in place, and is not stored, because only training seemed to need it. */
  if (MUTANT == 184 && (call->flags & PLUMB_CALL_TRAIN) == 0) {
    copy.sum = call->y;
    copy.sum_pitch = call->y_pitch;
  }
  return BaseResidualForward(norm, call, &copy, r0, r1);
}

static plumb_status SpoilResidualBackward(const plumb_norm_instance* norm,
                                          const plumb_norm_call* call,
                                          const plumb_residual_call* residual, int64_t r0,
                                          int64_t r1) {
  plumb_residual_call copy = *residual;
  plumb_norm_call scaled = CopyOfCall(call);
  void* dparams[2];
  float unused[2][2048];
  /* 185: residual, bf16, backward: the gradients of parameters go to a temporary that is never added to dparams. */
  if (MUTANT == 185 && call->dtype == PLUMB_DTYPE_BF16 && norm->dim <= 2048) {
    memset(unused, 0, sizeof(unused));
    dparams[0] = unused[0];
    dparams[1] = unused[1];
    scaled.dparams = dparams;
  }
  return BaseResidualBackward(norm, &scaled, &copy, r0, r1);
}

#define LIST(X) X(173, N8) X(174, N3) X(175, N3) X(177, N3) X(178, N8) X(179, N8) \
  X(181, N7) X(182, N8) X(183, N3) X(184, N3) X(185, N3)
MANY(LIST)
