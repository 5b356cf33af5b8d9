/* SPDX-License-Identifier: Apache-2.0 */
/* Hidden bugs: a correct norm that fails only under a condition on dim, rows, range, type,
 * attribute, phase, magnitude, alignment or path. MUTANT is the number of the built one; its line
 * below has the condition and the bug. They are typical errors of authors: a forgotten tail, a
 * vector path that was never run, a parameter gradient that is set and not added. */
#define MANY_FLAGS(n, flags) ((n) == 85 ? PLUMB_NORM_APPROXIMATE_GRADIENT : (flags))
#include "many.h"
#define BASE_FORWARD SpoiltForward
#define BASE_BACKWARD SpoiltBackward
#include "call_copy.h"
#include "base_norm.h"

#include "operand.h"

/* Converts f32 to bf16 without rounding; `away`: to the larger magnitude. */
static plumb_bf16 Cut(float value, int away) {
  uint32_t bits;
  plumb_bf16 result;
  uint16_t high;
  memcpy(&bits, &value, sizeof(bits));
  high = (uint16_t)(bits >> 16);
  if (away && (bits & 0xffffu) != 0) ++high;
  memcpy(&result, &high, sizeof(result));
  return result;
}

static void CutY(const plumb_norm_call* c, int64_t r0, int64_t r1, double eps, int away) {
  const Operand x = {c->dtype, (void*)c->x, c->x_pitch};
  for (int64_t r = r0; r < r1; ++r) {
    double squares = 0;
    for (uint32_t i = 0; i < c->dim; ++i) squares += Get(x, r, i) * Get(x, r, i);
    const float rstd = (float)(1 / sqrt(squares / c->dim + eps));
    for (uint32_t i = 0; i < c->dim; ++i)
      PLUMB_ROW(plumb_bf16, c->y, c->y_pitch, r)
    [i] = Cut((float)(Get(x, r, i) * rstd * ((const float*)c->params[0])[i]), away);
  }
}

/* Returns the weight as a row. */
static Operand WeightOf(const plumb_norm_call* c) {
  const Operand w = {c->dtype == PLUMB_DTYPE_F64 ? PLUMB_DTYPE_F64 : PLUMB_DTYPE_F32,
                     (void*)c->params[0], 0};
  return w;
}

#define ALL_ROWS(what) \
  for (int64_t r = r0; r < r1; ++r) what

static plumb_status SpoiltForward(const plumb_norm_instance* n, const plumb_norm_call* c,
                                  int64_t r0, int64_t r1) {
  const Operand y = {c->dtype, c->y, c->y_pitch}, x = {c->dtype, (void*)c->x, c->x_pitch};
  const Operand w = WeightOf(c);
  const uint32_t d = c->dim, last = d - 1;
  const int train = (c->flags & PLUMB_CALL_TRAIN) != 0, f32 = c->dtype == PLUMB_DTYPE_F32,
            bf16 = c->dtype == PLUMB_DTYPE_BF16, in_place = c->x == c->y;
  double largest[2] = {0, 0}, mean = 0; /* of row r0 */
  double kept = 0;
  plumb_norm_call whole = CopyOfCall(c);
  if (r0 == r1) return PLUMB_OK;
  if (in_place && MUTANT == 56) kept = Get(x, r0, last);
  if (!in_place || MUTANT == 43 || MUTANT == 46 || MUTANT == 48) {
    largest[0] = Largest(x, d, r0);
    mean = Mean(x, d, r0);
  }
  largest[1] = Largest(w, d, 0);
  if (MUTANT == 19 && !in_place) return BaseForward(n, &whole, 0, c->rows); /* ignores the range */
  if (BaseForward(n, c, r0, r1) != PLUMB_OK) return PLUMB_STATUS_UNIMPLEMENTED;
  switch (MUTANT) {
    /* dim */
    case 2: if (d % 64 == 1 && d > 1) ALL_ROWS(Set(y, r, last, 0)); break;
    case 5: if (d == 256 && f32) Scale(y, d, r0, r1, 1.01); break;
    case 6: if (d == 768) Scale(y, d, r0, r1, 1.01); break;
    case 7: if (d == 1) Scale(y, d, r0, r1, 2); break;
    case 9: if (d % 16 == 15 && f32) ALL_ROWS(Set(y, r, last, 0)); break;
    /* rows and ranges */
    case 12: if (c->rows > 4096) Scale(y, d, r0, r1, 1.01); break;
    case 13: if (r1 > 300) Scale(y, d, r1 - 1, r1, 1.5); break;
    case 16: if (r1 < c->rows) Set(y, r1, 0, 0); break;
    case 18: if (train && r0 > 8) *PLUMB_ROW(float, c->saved, c->saved_pitch, r0 - 1) = 0; break;
    /* types */
    case 24: if (bf16) CutY(c, r0, r1, n->eps, 0); break;
    case 26: if (bf16) CutY(c, r0, r1, n->eps, 1); break;
    case 29: if (bf16 && !in_place) Scale(y, d, r0, r1, 1 + 1 / 128.0); break;
    /* attributes */
    case 28: if (f32 && n->eps > 0.1) Scale(y, d, r0, r1, 1.01); break;
    case 31: if (n->eps == 0) Scale(y, d, r0, r1, 1.01); break;
    /* phases */
    case 36: if (!train && d > 500) Scale(y, d, r0, r1, 1.01); break;
    case 37: if (!train && c->rows > 64) Scale(y, d, r1 - 1, r1, 1.01); break;
    case 38: if (train && d % 32 == 0 && c->rows > 100) Scale(y, d, r0, r1, 1.01); break;
    case 39: if (!train && bf16) CutY(c, r0, r1, n->eps, 0); break;
    case 40: if (!train && c->rows == 1 && d >= 64) Scale(y, d, r0, r1, 1.01); break;
    /* magnitudes */
    case 41: for (uint32_t i = 0; i < d; ++i)
        if (Get(w, 0, i) < 0) ALL_ROWS(Set(y, r, i, -Get(y, r, i)));
      break;
    case 43: if (largest[0] > 1e4) Scale(y, d, r0, r0 + 1, 0.5); break;
    case 46: if (largest[0] < 1e-6) Scale(y, d, r0, r0 + 1, 0); break;
    case 47: if (largest[1] > 10) Scale(y, d, r0, r1, 0.9); break;
    case 48: if (mean > 10) Scale(y, d, r0, r0 + 1, 0.99); break;
    /* alignment and pitch */
    case 50: if (c->y_pitch != c->x_pitch) Scale(y, d, r1 - 1, r1, 0.99); break;
    case 53: if ((uintptr_t)c->x % 16 != 0 && d >= 64) Scale(y, d, r0, r1, 1 - 1e-2); break;
    case 52:
      if (train && c->saved_pitch > 8) *PLUMB_ROW(float, c->saved, c->saved_pitch, r0) = 0;
      break;
    /* paths */
    case 56: if (in_place) Set(y, r0, last, kept); break;
    case 65: if (d > 1000 && !in_place) {
        void* volatile block = malloc(d); /* volatile: a compiler would drop both */
        free(block);
      }
      break;
    case 66: if (c->rows > 64 && r0 == 0) {
        FILE* file = fopen("/dev/null", "w");
        if (file != NULL) fclose(file);
      }
      break;
    default: break;
  }
  return PLUMB_OK;
}

static plumb_status SpoiltBackward(const plumb_norm_instance* n, const plumb_norm_call* c,
                                   int64_t r0, int64_t r1) {
  const Operand dx = {c->dtype, c->dx, c->dx_pitch}, x = {c->dtype, (void*)c->x, c->x_pitch};
  const Operand dy = {c->dtype, (void*)c->dy, c->dy_pitch}, w = WeightOf(c);
  const Operand dw = {w.type, c->dparams[0], 0};
  const uint32_t d = c->dim, last = d - 1;
  const int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0, f32 = c->dtype == PLUMB_DTYPE_F32,
            f64 = c->dtype == PLUMB_DTYPE_F64, bf16 = c->dtype == PLUMB_DTYPE_BF16,
            alias = c->dx == c->dy;
  double largest_dy, largest_x, kept_dx, mean;
  plumb_norm_call other = CopyOfCall(c);
  if (r0 == r1) return PLUMB_OK;
  largest_dy = Largest(dy, d, r0), largest_x = Largest(x, d, r0), mean = Mean(x, d, r0);
  kept_dx = Get(dx, r0, last);
  if ((MUTANT == 54 && (c->flags & PLUMB_CALL_ALIGNED64)) || (MUTANT == 60 && d % 16 == 0))
    other.flags &= ~(uint32_t)PLUMB_CALL_DX_ACCUMULATE;
  if (MUTANT == 61 && d > 512) memset(c->dparams[0], 0, d * (f64 ? 8u : 4u));
  if (MUTANT == 62 && r0 > 0) Scale(dw, d, 0, 1, 0);
  const double first = Get(dw, 0, 0), end = Get(dw, 0, last);
  if (BaseBackward(n, &other, r0, r1) != PLUMB_OK) return PLUMB_STATUS_UNIMPLEMENTED;
  switch (MUTANT) {
    /* dim */
    case 1: if (d % 16 == 0) Scale(dx, d, r0, r1, 1.02); break;
    case 3: if (d > 4096) Scale(dx, d, r0, r1, 1.02); break;
    case 4: if (d >= 1024) Set(dw, 0, last, end); break;
    case 8: if (d > 100 && d % 2 == 1) ALL_ROWS(Set(dx, r, last, 0)); break;
    case 10: if (d > 2048) Set(dw, 0, 2048, 0); break;
    /* rows and ranges */
    case 11: if (c->rows > 1000) Scale(dx, d, r0, r1, 1.02); break;
    case 14: if (r1 - r0 > 256) Set(dw, 0, 0, first); break;
    case 15: if (r1 - r0 == 1) Set(dw, 0, 0, first); break;
    case 17: if (r0 > 0) Set(dx, r0 - 1, 0, 0); break;
    case 20: if (r1 > 10000) Scale(dx, d, r1 - 1, r1, 2); break;
    /* types */
    case 21: if (bf16) Scale(dx, d, r0, r1, 1.02); break;
    case 22: if (bf16) Set(dw, 0, last, end); break;
    case 23: if (f32 && d > 100) Set(dw, 0, last, end); break;
    case 25: if (bf16 && d % 2 == 0 && !add) Scale(dx, d, r0, r1, 1 - 1 / 256.0); break;
    case 27: if (f32 && add) Scale(dx, d, r0, r1, 1.02); break;
    case 30: if (f32 && !add)
        ALL_ROWS(for (uint32_t i = 0; i < d; ++i) if (fabs(Get(dx, r, i)) < 1e-2) Set(dx, r, i, 0));
      break;
    /* attributes */
    case 33: if (n->eps != 1e-6 && bf16) Scale(dx, d, r0, r1, 1.03); break;
    case 34: if (n->eps == 1) Set(dw, 0, 0, first); break;
    /* magnitudes */
    case 44: if (largest_dy > 100) Scale(dx, d, r0, r0 + 1, 100 / largest_dy); break;
    case 45: if (largest_dy == 0) Set(dx, r0, last, kept_dx); break;
    case 49: if (largest_x == 0) Scale(dx, d, r0, r0 + 1, 0); break;
    case 63: if (Largest(w, d, 0) < 0.5) Scale(dx, d, r0, r1, 1.02); break;
    case 64: if (mean < -10) Scale(dx, d, r0, r0 + 1, 1.02); break;
    /* alignment and pitch */
    case 51: if (c->dx_pitch != c->dy_pitch) Scale(dx, d, r1 - 1, r1, 0.98); break;
    case 55: if ((uintptr_t)c->x % 32 != 0) Scale(dx, d, r0, r1, 1.02); break;
    /* paths */
    case 57: if (alias && d > 64) Scale(dx, d, r0, r1, 1.02); break;
    case 58: if (bf16 && alias) Scale(dx, d, r0, r1, 1.03); break;
    case 59: if (add && bf16 && d > 16) Scale(dx, d, r0, r1, 1.05); break;
    default: break;
  }
  return PLUMB_OK;
}

#define LIST(X) X(1, N2) X(2, N2) X(3, N2) X(4, N2) X(5, N1) X(6, N2) X(7, N2) X(8, N2) \
  X(9, N1) X(10, N2) X(11, N2) X(12, N4) X(13, N4) X(14, N16) X(15, N16) X(16, N4) X(17, N4) \
  X(18, N4) X(19, N7) X(20, N4) X(21, N3) X(22, N12) X(23, N1) X(24, N12) X(25, N3) \
  X(26, N3) X(27, N3) X(28, N1) X(29, N3) X(30, N1) X(31, N2) X(33, N3) \
  X(34, N2) X(36, N4) X(37, N4) X(38, N4) X(39, N3) X(40, N4) X(41, N2) \
  X(43, N2) X(44, N2) X(45, N2) X(46, N2) X(47, N2) X(48, N2) X(49, N2) \
  X(50, N3) X(51, N3) X(52, N3) X(53, N8) X(54, N3) X(55, N8) X(56, N3) X(57, N3) \
  X(58, N3) X(59, N3) X(60, N3) X(61, N3) X(62, N3) X(63, N2) X(64, N2) X(65, R1) \
  X(66, R1) X(85, N2)
MANY(LIST)
