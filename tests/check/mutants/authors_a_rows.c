/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants with a condition on dim, rows or the range: tails, blocks, tables that are too short. */
#include "many.h"
#define SPOIL_SQUARE SpoilSquare
#define SPOIL_Y SpoilY
#define SPOIL_R SpoilR
#define SPOIL_MEAN_U SpoilMeanU
#define SPOIL_DWEIGHT SpoilDweight
#define SPOIL_DBIAS SpoilDbias
#define A_FORWARD SpoilForward
#define A_BACKWARD SpoilBackward
#include "call_copy.h"
#include "authors_a_norm.h"

static double SpoilSquare(const Site* at, uint32_t i, double square) {
  const uint32_t n = at->end - at->begin, j = i - at->begin;
  switch (MUTANT) {
    /* 101: group of 16 k + 15 elements: the mask of the tail is one lane short, and the variance misses the last square. */
    case 101:
      return n % 16 == 15 && j == n - 1 ? 0 : square;
    /* 102: dim > 4096: a table of 16 blocks of 256; elements after it are not summed. */
    case 102:
      return at->norm->dim > 4096 && i >= 4096 ? 0 : square;
    /* 103: dim a multiple of 64: four accumulators, of which the fourth is never added. */
    case 103:
      return n % 64 == 0 && j % 64 >= 48 ? 0 : square;
    default:
      return square;
  }
}

static double SpoilR(const Site* at, double variance, double r) {
  const int64_t in_range = at->row - at->r0;
  (void)variance;
  /* 104: range of a multiple of 4 rows: in a block of four, row 3 adds 100 eps + 0.01 instead of eps. */
  if (MUTANT == 104 && (at->r1 - at->r0) % 4 == 0 && in_range % 4 == 3)
    return 1 / sqrt(variance + 100 * at->norm->eps + 0.01);
  return r;
}

static double SpoilY(const Site* at, uint32_t i, double h, double y) {
  const uint32_t dim = at->norm->dim;
  switch (MUTANT) {
    /* 105: dim == 1: "nothing to normalize", y = x. */
    case 105:
      return dim == 1 ? XAt(at, i) : y;
    /* 106: range of one row in evaluation (decoding): the bias is forgotten. */
    case 106:
      return at->r1 - at->r0 == 1 && !IsTraining(at) ? h * GainAt(at, i) : y;
    /* 107: dim > 1024: the gain is read through an index of ten bits. */
    case 107:
      return dim > 1024 ? h * GainAt(at, i & 1023) + BiasAt(at, i) : y;
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
    /* 109: group a multiple of 8, but not of 16: the half step drops its last eight from <u>. */
    case 109: {
      double sum = 0;
      if (n % 16 != 8 || at->norm->rms) return mean_u;
      for (uint32_t i = at->begin; i < at->end - 8; ++i) sum += DyAt(at, i) * GainAt(at, i);
      return sum / n;
    }
    /* 110: more than 512 elements in a group: divided by the size of a block. */
    case 110:
      return n > 512 ? mean_u * n / 512 : mean_u;
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
    /* 112: range of one row: a shortcut for decoding has no parameter gradients. */
    case 112:
      return rows == 1 ? 0 : d;
    /* 113: odd dim: the last element is set and not added. */
    case 113: {
      const uint32_t wide = Wide(at->call->dtype);
      return at->norm->dim % 2 == 1 && i == at->norm->dim - 1
                 ? d - Load(wide, at->call->dparams[0], i)
                 : d;
    }
    default:
      return d;
  }
}

static double SpoilDbias(const Site* at, uint32_t i, double d) {
  Site other = *at;
  switch (MUTANT) {
    /* 114: dim == 2: unrolled, with the two sums swapped. */
    case 114:
      return at->norm->dim == 2 && at->call->dx != (void*)(uintptr_t)at->call->dy ? DyAt(at, 1 - i)
                                                                                  : d;
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
    return AuthorForward(norm, call, r0, r1);
  for (int64_t row = r0; row < r1; ++row) {
    plumb_norm_call copy = CopyOfCall(call);
    copy.saved = (char*)call->saved + ((row & 1023) - row) * call->saved_pitch;
    AuthorForward(norm, &copy, row, row + 1);
  }
  return PLUMB_OK;
}

static plumb_status SpoilBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  plumb_norm_call copy = CopyOfCall(call);
  if (MUTANT == 116 && call->rows > 1024) {
    for (int64_t row = r0; row < r1; ++row) {
      copy.saved = (char*)call->saved + ((row & 1023) - row) * call->saved_pitch;
      AuthorBackward(norm, &copy, row, row + 1);
    }
    return PLUMB_OK;
  }
  return AuthorBackward(norm, call, r0, r1);
}

#define LIST(X) X(101, N2) X(102, N2) X(103, N2) X(104, N4) X(105, N2) X(106, N4) X(107, N2) \
  X(108, N4) X(109, N2) X(110, N2) X(111, N16) X(112, N16) X(113, N2) X(114, N2) X(115, N16) \
  X(116, N2)
MANY(LIST)
