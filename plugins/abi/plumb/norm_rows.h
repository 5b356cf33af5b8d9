/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/norm_rows.h: macros for row-wise norms, so that an author writes only the equations.
 *
 * Optional, next to plumb/norm_plugin.h: C11 or C++11 or later, no library. The author defines two
 * macros that process a row. PLUMB_NORM_ROWS expands them into the functions of the table for f32,
 * bf16 and f64 and for several instruction sets, of which the best is chosen at run time, including
 * the accumulation of dx and the residual extension. RMSNorm without attributes is
 *
 *   #define FORWARD_Rms                                                \
 *     const real* gain = PLUMB_PARAM(0);                               \
 *     PLUMB_EACH_ROW {                                                 \
 *       real sum;                                                      \
 *       PLUMB_SUM(real, sum, 0, dim, (x * x));                         \
 *       const real s = 1 / plumb_sqrt(sum / (real)dim + (real)1e-5);   \
 *       PLUMB_SAVE(0, s);                                              \
 *       PLUMB_Y(0, dim, (x * s * gain[i]));                            \
 *     }
 *   #define BACKWARD_Rms                                               \
 *     const real* gain = PLUMB_PARAM(0);                               \
 *     real* dgain = PLUMB_DPARAM(0);                                   \
 *     PLUMB_EACH_ROW {                                                 \
 *       const real s = PLUMB_SAVED(0);                                 \
 *       real sum;                                                      \
 *       PLUMB_SUM(real, sum, 0, dim, (dy * gain[i] * (x * s)));        \
 *       const real mean = sum / (real)dim;                             \
 *       PLUMB_DX(0, dim, (s * (dy * gain[i] - x * s * mean)),          \
 *                dgain[i] += dy * (x * s));                            \
 *     }
 *   PLUMB_NORM_ROWS(Rms, 0)
 *
 * and its table has .forward = RmsForward, .backward = RmsBackward, .get_extension =
 * RmsGetExtension, .dtypes = PLUMB_ROWS_DTYPES, .flags |= PLUMB_ROWS_FLAGS. The layout's
 * backward_needs is PLUMB_BACKWARD_READS_X.
 *
 * Names for use in the two macros:
 *   norm, call           the instance and the call
 *   dim                  the length of a row
 *   variant              value of the second argument of PLUMB_NORM_ROWS: an expression over `norm`
 *                        that yields 0, 1 or 2. It is a constant in the macros: each value gets its
 *                        own code, without branches in loops.
 *   real, element        the accumulate type, and the type in memory (only for loads and stores)
 *   wide                 a type with the range for squares and sums of any `real`; slow
 *   sum_type             double for f32 and f64, float for bf16
 *   fused                true if the instruction set has fused multiply-add, for PLUMB_FMA
 *   i, x, dy             in the expressions of the loops below: the element's index, its value in
 *                        x, and (backward) in dy
 *
 * The order of a sum depends on the number of elements only, and multiplications and additions are
 * not fused if the compiler has -ffp-contract=off, as plumb_add_norm_plugin() and pkg-config
 * plumb-norm set it. A row then has the same bits in any range, at any address and with every
 * instruction set. y may be x and dx may be dy. (Parentheses around a product keep clang-format
 * from reading it as a pointer declaration.)
 *
 * Instruction sets: AVX-512 with and without bf16, AVX2 and the compiler's default on x86-64 with
 * gcc and clang; elsewhere only the compiler's default. The macro PLUMB_ROWS_MAX_LEVEL (0 to 3)
 * limits them to the lower ones. */
#ifndef PLUMB_NORM_ROWS_H
#define PLUMB_NORM_ROWS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

#define PLUMB_ROWS_DTYPES (PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64)
#define PLUMB_ROWS_FLAGS (PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED)

/* -- For create() ------------------------------------------------------------------------------ */

/* Checks that every number among the `n` values of create() is in the range of its definition. A
 * host has checked this, but not always for a norm that is linked into a program. NaN is in no
 * range that has a bound.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT, with a message in `err`. */
static inline plumb_status plumb_check_ranges(const plumb_attr_def* defs, uint32_t n,
                                              const plumb_attr_value* values, char* err,
                                              size_t cap) {
  for (uint32_t i = 0; i < n; ++i) {
    const plumb_attr_def* def = &defs[i];
    const double value = def->type == PLUMB_ATTR_F64 ? values[i].f : (double)values[i].i;
    if (def->type == PLUMB_ATTR_STRING || def->type == PLUMB_ATTR_ENUM) continue;
    if ((isnan(def->min) || value >= def->min) && (isnan(def->max) || value <= def->max)) continue;
    snprintf(err, cap, "%s is %g, and must be in [%g, %g]", def->name, value, def->min, def->max);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  return PLUMB_OK;
}

/* -- Macros for the author ------------------------------------------------------------------- */

/* Parameter number k, and its gradient, as pointers to `real`. */
#define PLUMB_PARAM(k) ((const real*)call->params[k])
#define PLUMB_DPARAM(k) ((real*)call->dparams[k])

/* Loop over the rows of the range; its body processes one row. */
#define PLUMB_EACH_ROW for (int64_t row = r0; row < r1 && PLUMB_ROWS_ENTER_(row); ++row)

/* Number k of the saved_per_row numbers that forward leaves for backward. PLUMB_SAVE does nothing
 * in calls that save nothing. */
#define PLUMB_SAVE(k, value)                                             \
  do {                                                                   \
    if (call->saved != NULL) {                                           \
      PLUMB_ROW(real, call->saved, call->saved_pitch, row)[k] = (value); \
    }                                                                    \
  } while (0)
#define PLUMB_SAVED(k) (PLUMB_CONST_ROW(real, call->saved, call->saved_pitch, row)[k])

/* Element k of the row, for use outside of the loops below. */
#define PLUMB_X(k) plumb_rows_load_(x_row[k])

/* Computes sum = the sum of `term` over begin <= i < end in type S: float, double, real or
 * sum_type. Adds into 128 bytes of adjacent partial sums, for vector instructions. */
#define PLUMB_SUM(S, sum, begin, end, term)                                \
  do {                                                                     \
    PLUMB_ROWS_PARTS_(S, plumb_part)                                       \
    size_t plumb_at = (begin);                                             \
    const size_t plumb_end = (end);                                        \
    for (; plumb_at + plumb_parts <= plumb_end; plumb_at += plumb_parts) { \
      S plumb_term[plumb_parts];                                           \
      PLUMB_ROWS_FOR_BLOCK_(plumb_parts, plumb_term[plumb_k] = (S)(term)); \
      PLUMB_ROWS_ADD_PARTS_(plumb_part, plumb_term)                        \
    }                                                                      \
    S plumb_rest = 0;                                                      \
    PLUMB_ROWS_FOR_REST_(plumb_rest += (S)(term))                          \
    PLUMB_ROWS_FOLD_(S, sum, plumb_part, plumb_rest);                      \
  } while (0)

/* Computes two sums in one pass over the row. */
#define PLUMB_SUM2(S, sum, other, begin, end, term, other_term)                       \
  do {                                                                                \
    PLUMB_ROWS_PARTS_(S, plumb_part)                                                  \
    PLUMB_ROWS_MORE_PARTS_(S, plumb_more)                                             \
    size_t plumb_at = (begin);                                                        \
    const size_t plumb_end = (end);                                                   \
    for (; plumb_at + plumb_parts <= plumb_end; plumb_at += plumb_parts) {            \
      S plumb_term[plumb_parts], plumb_other[plumb_parts];                            \
      PLUMB_ROWS_FOR_BLOCK_(plumb_parts, plumb_term[plumb_k] = (S)(term);             \
                            plumb_other[plumb_k] = (S)(other_term));                  \
      PLUMB_ROWS_ADD_PARTS_(plumb_part, plumb_term)                                   \
      PLUMB_ROWS_ADD_PARTS_(plumb_more, plumb_other)                                  \
    }                                                                                 \
    S plumb_rest = 0, plumb_more_rest = 0;                                            \
    PLUMB_ROWS_FOR_REST_(plumb_rest += (S)(term); plumb_more_rest += (S)(other_term)) \
    PLUMB_ROWS_FOLD_(S, sum, plumb_part, plumb_rest);                                 \
    PLUMB_ROWS_FOLD_(S, other, plumb_more, plumb_more_rest);                          \
  } while (0)

/* Computes the sum in `wide`, element by element, for rows whose numbers exceed the range of
 * PLUMB_SUM. */
#define PLUMB_WIDE_SUM(sum, begin, end, term)                       \
  do {                                                              \
    (sum) = 0;                                                      \
    for (size_t plumb_at = (begin); plumb_at < (end); ++plumb_at) { \
      PLUMB_ROWS_ELEMENT_(plumb_at)                                 \
      (sum) += (wide)(term);                                        \
    }                                                               \
  } while (0)

/* Stores y = `value` for begin <= i < end. */
#define PLUMB_Y(begin, end, value)                              \
  do {                                                          \
    const size_t plumb_end = (end);                             \
    size_t plumb_at = (begin);                                  \
    if (stream) {                                               \
      PLUMB_ROWS_BLOCKS_(1, y_row, (void)0, (value))            \
    } else {                                                    \
      PLUMB_ROWS_BLOCKS_(0, y_row, (void)0, (value))            \
    }                                                           \
    PLUMB_ROWS_FOR_REST_(plumb_rows_store_(y_row + i, (value))) \
  } while (0)

/* Stores dx = `gradient` for begin <= i < end, or adds it to dx if the call requests that. Before
 * it the statements `update` run for each element: they add to element i of parameters' gradients,
 * and may define variables for `gradient`; (void)0 for none. */
#define PLUMB_DX(begin, end, gradient, update)                                                   \
  do {                                                                                           \
    const size_t plumb_end = (end);                                                              \
    size_t plumb_at = (begin);                                                                   \
    if (add_row != NULL) {                                                                       \
      PLUMB_ROWS_BLOCKS_(0, dx_row, update, PLUMB_ROWS_MORE_ + (gradient))                       \
      PLUMB_ROWS_FOR_REST_(update; plumb_rows_store_(dx_row + i, PLUMB_ROWS_MORE_ + (gradient))) \
    } else if (stream) {                                                                         \
      PLUMB_ROWS_BLOCKS_(1, dx_row, update, (gradient))                                          \
    } else {                                                                                     \
      PLUMB_ROWS_BLOCKS_(0, dx_row, update, (gradient))                                          \
    }                                                                                            \
    PLUMB_ROWS_FOR_REST_(update; plumb_rows_store_(dx_row + i, (gradient)))                      \
  } while (0)

/* Does the same with ordinary stores, and computes two sums, as PLUMB_SUM2 does, of terms that
 * share intermediate results with `gradient`. */
#define PLUMB_DX_SUM2(S, sum, other, begin, end, gradient, update, term, other_term)            \
  do {                                                                                          \
    PLUMB_ROWS_PARTS_(S, plumb_part)                                                            \
    PLUMB_ROWS_MORE_PARTS_(S, plumb_more)                                                       \
    S plumb_rest = 0, plumb_more_rest = 0;                                                      \
    const size_t plumb_end = (end);                                                             \
    size_t plumb_at = (begin);                                                                  \
    for (; plumb_at + plumb_parts <= plumb_end; plumb_at += plumb_parts) {                      \
      S plumb_term[plumb_parts], plumb_other[plumb_parts];                                      \
      if (add_row != NULL) {                                                                    \
        PLUMB_ROWS_FOR_BLOCK_(plumb_parts, update; plumb_term[plumb_k] = (S)(term);             \
                              plumb_other[plumb_k] = (S)(other_term);                           \
                              plumb_rows_store_(dx_row + i, PLUMB_ROWS_MORE_ + (gradient)));    \
      } else {                                                                                  \
        PLUMB_ROWS_FOR_BLOCK_(plumb_parts, update; plumb_term[plumb_k] = (S)(term);             \
                              plumb_other[plumb_k] = (S)(other_term);                           \
                              plumb_rows_store_(dx_row + i, (gradient)));                       \
      }                                                                                         \
      PLUMB_ROWS_ADD_PARTS_(plumb_part, plumb_term)                                             \
      PLUMB_ROWS_ADD_PARTS_(plumb_more, plumb_other)                                            \
    }                                                                                           \
    PLUMB_ROWS_FOR_REST_(                                                                       \
        update; plumb_rest += (S)(term); plumb_more_rest += (S)(other_term); plumb_rows_store_( \
            dx_row + i, add_row == NULL ? (gradient) : PLUMB_ROWS_MORE_ + (gradient)))          \
    PLUMB_ROWS_FOLD_(S, sum, plumb_part, plumb_rest);                                           \
    PLUMB_ROWS_FOLD_(S, other, plumb_more, plumb_more_rest);                                    \
  } while (0)
#define PLUMB_ROWS_MORE_ plumb_rows_load_(add_row[i])

/* Specifiers of functions that the two macros call. */
#if defined(__GNUC__)
#define PLUMB_ROWS_INLINE static inline __attribute__((always_inline, unused))
#else
#define PLUMB_ROWS_INLINE static inline
#endif

/* Computes a b + c, rounded once if `fused`, else twice. Faster in long polynomials, but the bits
 * then differ between processors with and without AVX2. */
#define PLUMB_FMA(fused, a, b, c) ((fused) ? plumb_fma_((a), (b), (c)) : (a) * (b) + (c))

/* Also available: plumb_abs(v) and plumb_sqrt(v), of a float or a double. */

#include "plumb/norm_rows_impl.h"

/* -- The functions of the table: NAMEForward, NAMEBackward, NAMEGetExtension ------------------- */

#define PLUMB_NORM_ROWS(NAME, VARIANT)                                                             \
  PLUMB_ROWS_LEVELS_(NAME##Forward, VARIANT, 0, FORWARD_##NAME)                                    \
  PLUMB_ROWS_LEVELS_(NAME##Backward, VARIANT, 1, BACKWARD_##NAME)                                  \
  static plumb_status NAME##Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,  \
                                    int64_t r0, int64_t r1) {                                      \
    return NAME##ForwardRows(norm, call, NULL, r0, r1);                                            \
  }                                                                                                \
  static plumb_status NAME##Backward(const plumb_norm_instance* norm, const plumb_norm_call* call, \
                                     int64_t r0, int64_t r1) {                                     \
    return NAME##BackwardRows(norm, call, NULL, r0, r1);                                           \
  }                                                                                                \
  PLUMB_ROWS_INLINE const void* NAME##GetExtension(const char* id) {                               \
    static const plumb_norm_residual residual = {sizeof(plumb_norm_residual), 0,                   \
                                                 NAME##ForwardRows, NAME##BackwardRows};           \
    return strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &residual : NULL;                                 \
  }

#endif /* PLUMB_NORM_ROWS_H */
