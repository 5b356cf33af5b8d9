/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants with a condition on dim, rows or the range: tails, blocks, tables that are too short. */
#include "many.h"
#define SPOIL_SQUARE SpoilSquare
#define SPOIL_Y SpoilY
#define SPOIL_MEAN_U SpoilMeanU
#define SPOIL_DWEIGHT SpoilDweight
#define SPOIL_DBIAS SpoilDbias
#define NORM_FORWARD SpoilForward
#define NORM_BACKWARD SpoilBackward
#include "operand.h"
#include "norm.h"

static double SpoilSquare(const Site* at, uint32_t i, double square) {
  const uint32_t n = at->end - at->begin, j = i - at->begin;
  switch (MUTANT) {
    /* 101: group of 16 k + 15 elements: the mask of the tail is one lane short, and the variance misses the last square. */
    case 101:
      return n % 16 == 15 && j == n - 1 ? 0 : square;
    default:
      return square;
  }
}

static double SpoilY(const Site* at, uint32_t i, double h, double y) {
  const uint32_t dim = at->norm->dim;
  switch (MUTANT) {
    /* 106: range of one row in evaluation (decoding): the bias is forgotten. */
    case 106:
      return at->r1 - at->r0 == 1 && !IsTraining(at) ? h * GainAt(at, i) : y;
    /* 108: the last row of a call with an odd number of rows, 9 or more: it has no partner and uses the statistic of the previous row. */
    case 108:
      if (at->row == at->call->rows - 1 && at->row >= 8 && at->row % 2 == 0 && at->row > at->r0 &&
          at->call->x != at->call->y && at->residual == NULL) {
        Site before = *at;
        double squares = 0;
        --before.row;
        for (uint32_t k = at->begin; k < at->end; ++k) {
          const double d = XAt(&before, k) - (at->norm->rms ? 0 : at->mean);
          squares += d * d;
        }
        return h / at->r / sqrt(squares / (at->end - at->begin) + at->norm->eps) * GainAt(at, i) +
               BiasAt(at, i);
      }
      return y;
    default:
      return y;
  }
}

static double SpoilMeanU(const Site* at, double mean_u) {
  const uint32_t n = at->end - at->begin;
  switch (MUTANT) {
    default:
      return mean_u;
  }
}

static double SpoilDweight(const Site* at, uint32_t i, double d) {
  const int64_t rows = at->r1 - at->r0;
  switch (MUTANT) {
    /* 111: range of more than 256 rows: partial sums are flushed every 64 rows, and the last ones that do not fill 64 never. */
    case 111:
      return rows > 256 && at->row - at->r0 >= rows / 64 * 64 ? 0 : d;
    default:
      return d;
  }
}

static double SpoilDbias(const Site* at, uint32_t i, double d) {
  Site other = *at;
  switch (MUTANT) {
    /* 115: range that starts at an odd row: rows are processed in pairs, and the row before the range is added as well. */
    case 115:
      if (at->r0 % 2 == 0 || at->row != at->r0) return d;
      --other.row;
      return d + DyAt(&other, i);
    default:
      return d;
  }
}

/* 116: rows > 1024: forward saves a row's numbers at row & 1023, and backward reads them there. */
static plumb_status SpoilForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                 int64_t r0, int64_t r1) {
  if (MUTANT != 116 || call->saved == NULL || call->rows <= 1024)
    return BaseForward(norm, call, r0, r1);
  for (int64_t row = r0; row < r1; ++row) {
    plumb_norm_call copy = CopyOfCall(call);
    copy.saved = (char*)call->saved + ((row & 1023) - row) * call->saved_pitch;
    BaseForward(norm, &copy, row, row + 1);
  }
  return PLUMB_OK;
}

static plumb_status SpoilBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_norm_call copy = CopyOfCall(call);
  if (MUTANT == 116 && call->rows > 1024) {
    for (int64_t row = r0; row < r1; ++row) {
      copy.saved = (char*)call->saved + ((row & 1023) - row) * call->saved_pitch;
      BaseBackward(norm, &copy, row, row + 1);
    }
    return PLUMB_OK;
  }
  return BaseBackward(norm, call, r0, r1);
}

#define LIST(X) X(101, N2) X(106, N4) \
  X(108, N4) X(111, N16) X(115, N16) \
  X(116, N2)
MANY(LIST)
