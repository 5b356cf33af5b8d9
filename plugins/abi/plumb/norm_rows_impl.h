/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/norm_rows_impl.h: the implementation of plumb/norm_rows.h, which includes it. Not for
 * authors: any name in it may change with the next version.
 *
 * PLUMB_ROWS_BODY_ defines an always-inlined function for each direction and element type, in which
 * the author's macros are expanded. PLUMB_ROWS_LEVELS_ inlines it into one function for each
 * instruction set, where the compiler vectorizes its loops, and defines one that chooses. */
#ifndef PLUMB_NORM_ROWS_IMPL_H
#define PLUMB_NORM_ROWS_IMPL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"
#include "plumb/norm_rows_vectors.h"

PLUMB_ROWS_INLINE float plumb_abs_f32_(float v) { return fabsf(v); }
PLUMB_ROWS_INLINE double plumb_abs_f64_(double v) { return fabs(v); }
PLUMB_ROWS_INLINE float plumb_fma_f32_(float a, float b, float c) { return fmaf(a, b, c); }
PLUMB_ROWS_INLINE double plumb_fma_f64_(double a, double b, double c) { return fma(a, b, c); }

#ifndef PLUMB_ROWS_MAX_LEVEL
#define PLUMB_ROWS_MAX_LEVEL 3
#endif

/* Asserts that iterations are independent: y may be x and dx may be dy, but only with equal
 * indices. */
#if defined(__clang__)
#define PLUMB_ROWS_IVDEP_ _Pragma("clang loop vectorize(assume_safety)")
/* Also keeps a block of results rolled: clang would unroll it first, and then not vectorize it.
 * Loops of sums are vectorized either way. */
#define PLUMB_ROWS_IVDEP_ROLLED_ _Pragma("clang loop vectorize(assume_safety) unroll(disable)")
/* Without optimization or with a sanitizer a loop may stay scalar, which is no error. */
#pragma clang diagnostic ignored "-Wpass-failed"
#elif defined(__GNUC__)
#define PLUMB_ROWS_IVDEP_ _Pragma("GCC ivdep")
#define PLUMB_ROWS_IVDEP_ROLLED_ PLUMB_ROWS_IVDEP_
#else
#define PLUMB_ROWS_IVDEP_
#define PLUMB_ROWS_IVDEP_ROLLED_
#endif

enum {
  /* distance in rows between the written row and the prefetched one */
  PLUMB_ROWS_AHEAD_ = 2,
  /* Results of a call with at least this many bytes are stored past the caches: two thirds of a
   * last-level cache of 32 MiB, from where on it pays. */
  PLUMB_ROWS_STREAM_ = 20 << 20,
};

/* Calls NAME0_, NAME1_, NAME##two##_ or NAME##three##_, depending on the level, a constant. `two`
 * and `three` may be the same. */
#if PLUMB_ROWS_X86_
#define PLUMB_ROWS_BY_LEVEL_(NAME, two, three, ...)             \
  do {                                                          \
    if (plumb_level == 3) { /* NOLINT(bugprone-branch-clone) */ \
      NAME##three##_(__VA_ARGS__);                              \
    } else if (plumb_level == 2) {                              \
      NAME##two##_(__VA_ARGS__);                                \
    } else if (plumb_level == 1) {                              \
      NAME##1_(__VA_ARGS__);                                    \
    } else {                                                    \
      NAME##0_(__VA_ARGS__);                                    \
    }                                                           \
  } while (0)
#else
#define PLUMB_ROWS_BY_LEVEL_(NAME, two, three, ...) NAME##0_(__VA_ARGS__)
#endif

/* Declares i, x and dy of an element outside of blocks. */
#define PLUMB_ROWS_ELEMENT_(at)                                           \
  const size_t i = (at);                                                  \
  const real x = plumb_rows_load_(x_row[i]);                              \
  const real dy = plumb_backward ? plumb_rows_load_(dy_row[i]) : (real)0; \
  (void)i, (void)x, (void)dy;

/* Runs `statement` for the `n` elements of a block that begins at plumb_at, numbered by plumb_k.
 * First converts a whole block of bf16 to float. */
#define PLUMB_ROWS_FOR_BLOCK_(n, statement) PLUMB_ROWS_LOOP_(PLUMB_ROWS_IVDEP_, n, statement)
#define PLUMB_ROWS_LOOP_(PRAGMA, n, statement)                                                   \
  do {                                                                                           \
    float plumb_x[n], plumb_dy[n];                                                               \
    if (sizeof(element) == 2) {                                                                  \
      PLUMB_ROWS_BY_LEVEL_(plumb_rows_widen_, 2, 3, plumb_x,                                     \
                           (const plumb_bf16*)(const void*)x_row + plumb_at, n);                 \
      if (plumb_backward) {                                                                      \
        PLUMB_ROWS_BY_LEVEL_(plumb_rows_widen_, 2, 3, plumb_dy,                                  \
                             (const plumb_bf16*)(const void*)dy_row + plumb_at, n);              \
      }                                                                                          \
    }                                                                                            \
    PRAGMA                                                                                       \
    for (size_t plumb_k = 0; plumb_k < (n); ++plumb_k) {                                         \
      const size_t i = plumb_at + plumb_k;                                                       \
      const real x = sizeof(element) == 2 ? (real)plumb_x[plumb_k] : plumb_rows_load_(x_row[i]); \
      const real dy = !plumb_backward        ? (real)0                                           \
                      : sizeof(element) == 2 ? (real)plumb_dy[plumb_k]                           \
                                             : plumb_rows_load_(dy_row[i]);                      \
      (void)i, (void)x, (void)dy;                                                                \
      statement;                                                                                 \
    }                                                                                            \
  } while (0)
#define PLUMB_ROWS_FOR_REST_(statement)      \
  for (; plumb_at < plumb_end; ++plumb_at) { \
    PLUMB_ROWS_ELEMENT_(plumb_at)            \
    statement;                               \
  }

/* Stores a block of results, computed in `real`: narrowed to bf16 if necessary, and past the caches
 * if `past`. */
#define PLUMB_ROWS_PUT_(past, row, from, n)                                                        \
  do {                                                                                             \
    element* const plumb_to = (row) + plumb_at;                                                    \
    const float* const plumb_wide = (const float*)(const void*)(from);                             \
    if (sizeof(element) != 2) {                                                                    \
      PLUMB_ROWS_BY_LEVEL_(plumb_rows_stream_, 2, 2, plumb_to, from, (n) * sizeof(element));       \
    } else if (past) {                                                                             \
      plumb_bf16 plumb_narrow[n];                                                                  \
      PLUMB_ROWS_BY_LEVEL_(plumb_rows_narrow_, 2, 3, plumb_narrow, plumb_wide, n);                 \
      PLUMB_ROWS_BY_LEVEL_(plumb_rows_stream_, 2, 2, plumb_to, plumb_narrow, (n)*2);               \
    } else {                                                                                       \
      PLUMB_ROWS_BY_LEVEL_(plumb_rows_narrow_, 2, 3, (plumb_bf16*)(void*)plumb_to, plumb_wide, n); \
    }                                                                                              \
  } while (0)

/* Computes a row of results in blocks, `value` after the statements `update`, and stores it past
 * the caches if `past`. Such operands come from memory, so a later row of x is prefetched. */
#define PLUMB_ROWS_BLOCKS_(past, row, update, value)                                     \
  for (; plumb_at + plumb_block <= plumb_end; plumb_at += plumb_block) {                 \
    if ((past) && !plumb_backward) {                                                     \
      plumb_rows_prefetch_(later_row + plumb_at, plumb_block * sizeof(element));         \
    }                                                                                    \
    if (sizeof(element) == 2 || (past)) {                                                \
      real plumb_out[plumb_block];                                                       \
      PLUMB_ROWS_LOOP_(PLUMB_ROWS_IVDEP_ROLLED_, plumb_block, update;                    \
                       plumb_out[plumb_k] = (value));                                    \
      PLUMB_ROWS_PUT_(past, row, plumb_out, plumb_block);                                \
    } else {                                                                             \
      PLUMB_ROWS_FOR_BLOCK_(plumb_block, update; plumb_rows_store_((row) + i, (value))); \
    }                                                                                    \
  }

PLUMB_ROWS_INLINE void plumb_rows_prefetch_(const void* at, size_t bytes) {
#if defined(__GNUC__)
  for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char*)at + k);
#else
  (void)at, (void)bytes;
#endif
}

#define PLUMB_ROWS_SAME_(v) (v)
#define PLUMB_ROWS_FOR_TYPE_(S, ELEMENT, REAL, LOAD, STORE)                                 \
  PLUMB_ROWS_INLINE REAL plumb_rows_load_##S(ELEMENT v) { return LOAD(v); }                 \
  PLUMB_ROWS_INLINE void plumb_rows_store_##S(ELEMENT* to, REAL v) { *to = STORE(v); }      \
  /* Returns the row to normalize: x, or x + res, which it stores first. */                 \
  PLUMB_ROWS_INLINE const ELEMENT* plumb_rows_enter_##S(                                    \
      const ELEMENT* x, const plumb_residual_call* residual, size_t dim, int64_t row) {     \
    if (residual == NULL) return x;                                                         \
    const ELEMENT* res = PLUMB_CONST_ROW(ELEMENT, residual->res, residual->res_pitch, row); \
    ELEMENT* sum = PLUMB_ROW(ELEMENT, residual->sum, residual->sum_pitch, row);             \
    PLUMB_ROWS_IVDEP_                                                                       \
    for (size_t i = 0; i < dim; ++i) sum[i] = STORE(LOAD(x[i]) + LOAD(res[i]));             \
    return sum;                                                                             \
  }
PLUMB_ROWS_FOR_TYPE_(f32, float, float, PLUMB_ROWS_SAME_, PLUMB_ROWS_SAME_)
PLUMB_ROWS_FOR_TYPE_(bf16, plumb_bf16, float, plumb_bf16_to_float, plumb_bf16_from_float)
PLUMB_ROWS_FOR_TYPE_(f64, double, double, PLUMB_ROWS_SAME_, PLUMB_ROWS_SAME_)

/* With gcc, partial sums are vectors of the level's register size, since gcc keeps an array, and
 * wider vectors, in memory. */
#if defined(__GNUC__) && !defined(__clang__)
#define PLUMB_ROWS_PARTS_(S, part)                                    \
  enum { plumb_parts = (int)(128 / sizeof(S)) };                      \
  typedef S plumb_lanes __attribute__((vector_size(plumb_register))); \
  PLUMB_ROWS_MORE_PARTS_(S, part)
#define PLUMB_ROWS_MORE_PARTS_(S, part) plumb_lanes part[128 / plumb_register] = {{0}};
#define PLUMB_ROWS_ADD_PARTS_(part, term)                                                      \
  {                                                                                            \
    plumb_lanes plumb_added[128 / plumb_register];                                             \
    memcpy(plumb_added, term, sizeof(plumb_added));                                            \
    _Pragma("GCC unroll 8") for (int plumb_k = 0; plumb_k < 128 / plumb_register; ++plumb_k) { \
      part[plumb_k] += plumb_added[plumb_k];                                                   \
    }                                                                                          \
  }
#else
#define PLUMB_ROWS_PARTS_(S, part)               \
  enum { plumb_parts = (int)(128 / sizeof(S)) }; \
  PLUMB_ROWS_MORE_PARTS_(S, part)
#define PLUMB_ROWS_MORE_PARTS_(S, part) S part[plumb_parts] = {0};
#define PLUMB_ROWS_ADD_PARTS_(part, term) \
  for (size_t plumb_k = 0; plumb_k < plumb_parts; ++plumb_k) part[plumb_k] += term[plumb_k];
#endif
#define PLUMB_ROWS_FOLD_(S, sum, part, rest)                                \
  do {                                                                      \
    if (sizeof(S) == 4) {                                                   \
      float plumb_total;                                                    \
      PLUMB_ROWS_BY_LEVEL_(plumb_total = plumb_rows_fold_f32_, 1, 1, part); \
      (sum) = (S)plumb_total + (rest);                                      \
    } else {                                                                \
      double plumb_total;                                                   \
      PLUMB_ROWS_BY_LEVEL_(plumb_total = plumb_rows_fold_f64_, 1, 1, part); \
      (sum) = (S)plumb_total + (rest);                                      \
    }                                                                       \
  } while (0)

#ifdef __cplusplus
#define PLUMB_ROWS_OVERLOADS_(S, ELEMENT, REAL)                                                  \
  PLUMB_ROWS_INLINE REAL plumb_rows_load_(ELEMENT v) { return plumb_rows_load_##S(v); }          \
  PLUMB_ROWS_INLINE void plumb_rows_store_(ELEMENT* to, REAL v) { plumb_rows_store_##S(to, v); } \
  PLUMB_ROWS_INLINE const ELEMENT* plumb_rows_enter_(                                            \
      const ELEMENT* x, const plumb_residual_call* residual, size_t dim, int64_t row) {          \
    return plumb_rows_enter_##S(x, residual, dim, row);                                          \
  }
PLUMB_ROWS_OVERLOADS_(f32, float, float)
PLUMB_ROWS_OVERLOADS_(bf16, plumb_bf16, float)
PLUMB_ROWS_OVERLOADS_(f64, double, double)
PLUMB_ROWS_INLINE float plumb_abs(float v) { return plumb_abs_f32_(v); }
PLUMB_ROWS_INLINE double plumb_abs(double v) { return plumb_abs_f64_(v); }
PLUMB_ROWS_INLINE float plumb_sqrt(float v) { return plumb_sqrt_f32_(v); }
PLUMB_ROWS_INLINE double plumb_sqrt(double v) { return plumb_sqrt_f64_(v); }
PLUMB_ROWS_INLINE float plumb_fma_(float a, float b, float c) { return plumb_fma_f32_(a, b, c); }
PLUMB_ROWS_INLINE double plumb_fma_(double a, double b, double c) {
  return plumb_fma_f64_(a, b, c);
}
#else
#define PLUMB_ROWS_PICK_(F, v) _Generic((v), float : F##f32, plumb_bf16 : F##bf16, double : F##f64)
#define PLUMB_ROWS_PICK_POINTER_(F, p) \
  _Generic((p), float*: F##f32, const float*: F##f32, plumb_bf16*: F##bf16,           \
           const plumb_bf16*: F##bf16, double*: F##f64, const double*: F##f64)
#define plumb_rows_load_(v) PLUMB_ROWS_PICK_(plumb_rows_load_, v)(v)
#define plumb_rows_store_(to, v) PLUMB_ROWS_PICK_POINTER_(plumb_rows_store_, to)(to, v)
#define plumb_rows_enter_(x, residual, dim, row) \
  PLUMB_ROWS_PICK_POINTER_(plumb_rows_enter_, x)(x, residual, dim, row)
#define plumb_abs(v) _Generic((v), float : plumb_abs_f32_, double : plumb_abs_f64_)(v)
#define plumb_fma_(a, b, c) _Generic((a), float : plumb_fma_f32_, double : plumb_fma_f64_)(a, b, c)
#define plumb_sqrt(v) _Generic((v), float : plumb_sqrt_f32_, double : plumb_sqrt_f64_)(v)
#endif

/* Sets the pointers to the row's operands. */
#define PLUMB_ROWS_ENTER_(r)                                                                       \
  (plumb_backward                                                                                  \
       ? (x_row = PLUMB_CONST_ROW(element, call->x, call->x_pitch, r),                             \
          dy_row = PLUMB_CONST_ROW(element, call->dy, call->dy_pitch, r),                          \
          dx_row = PLUMB_ROW(element, call->dx, call->dx_pitch, r),                                \
          add_row = add == NULL ? NULL : PLUMB_CONST_ROW(element, add, add_pitch, r), 1)           \
       : (x_row = plumb_rows_enter_(PLUMB_CONST_ROW(element, call->x, call->x_pitch, r), residual, \
                                    dim, r),                                                       \
          y_row = PLUMB_ROW(element, call->y, call->y_pitch, r),                                   \
          later_row =                                                                              \
              PLUMB_CONST_ROW(element, call->x, call->x_pitch,                                     \
                              (r) + PLUMB_ROWS_AHEAD_ < r1 ? (r) + PLUMB_ROWS_AHEAD_ : (r)),       \
          1))

/* Defines the types of one element type. */
#define PLUMB_ROWS_TYPES_(ELEMENT, REAL, WIDE, SUM_TYPE) \
  typedef ELEMENT element;                               \
  typedef REAL real;                                     \
  typedef WIDE wide;                                     \
  typedef SUM_TYPE sum_type;                             \
  (void)sizeof(wide), (void)sizeof(sum_type);
#define PLUMB_ROWS_TYPES_F32 PLUMB_ROWS_TYPES_(float, float, double, double)
#define PLUMB_ROWS_TYPES_BF16 PLUMB_ROWS_TYPES_(plumb_bf16, float, double, float)
#define PLUMB_ROWS_TYPES_F64 PLUMB_ROWS_TYPES_(double, double, long double, double)

#define PLUMB_ROWS_PARAMETERS_                                  \
  const plumb_norm_instance *norm, const plumb_norm_call *call, \
      const plumb_residual_call *residual, int64_t r0, int64_t r1

/* Defines one direction for one type and level, to be inlined into a function for each variant. */
#define PLUMB_ROWS_BODY_(FUNCTION, TARGET, LEVEL, BACKWARD, TYPE, ...)                        \
  PLUMB_ROWS_INLINE TARGET void FUNCTION##TYPE##_##LEVEL##_(PLUMB_ROWS_PARAMETERS_,           \
                                                            const int variant) {              \
    PLUMB_ROWS_TYPES_##TYPE enum {                                                            \
      plumb_backward = BACKWARD,                                                              \
      plumb_level = LEVEL,                                                                    \
      plumb_block = sizeof(element) == 2 ? 32 : 64, /* elements computed before one stored */ \
      plumb_register = LEVEL > 1   ? 64                                                       \
                       : LEVEL > 0 ? 32                                                       \
                                   : 16, /* bytes */                                          \
      fused = LEVEL > 0                                                                       \
    };                                                                                        \
    const size_t dim = call->dim;                                                             \
    const element *x_row = NULL, *dy_row = NULL, *add_row = NULL, *later_row = NULL;          \
    element *y_row = NULL, *dx_row = NULL;                                                    \
    const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                     \
    const void* add = accumulate ? call->dx : residual == NULL ? NULL : residual->dsum;       \
    const int64_t add_pitch = accumulate         ? call->dx_pitch                             \
                              : residual == NULL ? 0                                          \
                                                 : residual->dsum_pitch;                      \
    const int stream = plumb_rows_streams_(call, residual, sizeof(element), plumb_backward);  \
    (void)norm, (void)variant, (void)dim, (void)add_pitch;                                    \
    (void)x_row, (void)dy_row, (void)add_row, (void)later_row, (void)y_row, (void)dx_row;     \
    __VA_ARGS__ plumb_rows_fence_(stream);                                                    \
  }

/* Returns true if results may be stored past the caches: not over operands, which are cached. */
PLUMB_ROWS_INLINE int plumb_rows_streams_(const plumb_norm_call* call,
                                          const plumb_residual_call* residual, size_t element_bytes,
                                          int backward) {
  const int adds =
      (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0 || (residual != NULL && residual->dsum != NULL);
  const void* in = backward ? call->dy : residual != NULL ? residual->sum : call->x;
  const void* out = backward ? call->dx : call->y;
  return (call->flags & PLUMB_CALL_ALIGNED64) != 0 && in != out && !(backward && adds) &&
         (call->rows >= PLUMB_ROWS_STREAM_ ||
          call->rows * (int64_t)(call->dim * element_bytes) >= PLUMB_ROWS_STREAM_);
}

#define PLUMB_ROWS_VARIANTS_(FUNCTION, VARIANT)  \
  switch (VARIANT) {                             \
    case 0:                                      \
      FUNCTION(norm, call, residual, r0, r1, 0); \
      return PLUMB_OK;                           \
    case 1:                                      \
      FUNCTION(norm, call, residual, r0, r1, 1); \
      return PLUMB_OK;                           \
    default:                                     \
      FUNCTION(norm, call, residual, r0, r1, 2); \
      return PLUMB_OK;                           \
  }
/* Defines the base level of all types. The author's macro is the last argument. */
#define PLUMB_ROWS_BASE_(FUNCTION, VARIANT, BACKWARD, ...)                                \
  PLUMB_ROWS_BODY_(FUNCTION, , 0, BACKWARD, F32, __VA_ARGS__)                             \
  PLUMB_ROWS_BODY_(FUNCTION, , 0, BACKWARD, BF16, __VA_ARGS__)                            \
  PLUMB_ROWS_BODY_(FUNCTION, , 0, BACKWARD, F64, __VA_ARGS__)                             \
  static plumb_status FUNCTION##Base(PLUMB_ROWS_PARAMETERS_) {                            \
    if (call->dtype == PLUMB_DTYPE_F32) PLUMB_ROWS_VARIANTS_(FUNCTION##F32_0_, VARIANT)   \
    if (call->dtype == PLUMB_DTYPE_BF16) PLUMB_ROWS_VARIANTS_(FUNCTION##BF16_0_, VARIANT) \
    if (call->dtype == PLUMB_DTYPE_F64) PLUMB_ROWS_VARIANTS_(FUNCTION##F64_0_, VARIANT)   \
    return PLUMB_STATUS_UNIMPLEMENTED;                                                    \
  }

#if PLUMB_ROWS_X86_ && PLUMB_ROWS_MAX_LEVEL > 0
PLUMB_ROWS_INLINE int plumb_rows_level_(void) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  if (PLUMB_ROWS_MAX_LEVEL < 2 || !__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return 1;
  }
  return PLUMB_ROWS_MAX_LEVEL > 2 && __builtin_cpu_supports("avx512bf16") &&
                 __builtin_cpu_supports("avx512vbmi")
             ? 3
             : 2;
}
#define PLUMB_ROWS_FAST_(FUNCTION, TARGET, LEVEL, TYPE, VARIANT, BACKWARD, ...)                   \
  PLUMB_ROWS_BODY_(FUNCTION, __attribute__((target(TARGET))), LEVEL, BACKWARD, TYPE, __VA_ARGS__) \
  __attribute__((target(TARGET))) static plumb_status FUNCTION##TYPE##Level##LEVEL(               \
      PLUMB_ROWS_PARAMETERS_) {                                                                   \
    PLUMB_ROWS_VARIANTS_(FUNCTION##TYPE##_##LEVEL##_, VARIANT)                                    \
  }
#define PLUMB_ROWS_LEVELS_(FUNCTION, VARIANT, BACKWARD, ...)                                   \
  PLUMB_ROWS_BASE_(FUNCTION, VARIANT, BACKWARD, __VA_ARGS__)                                   \
  PLUMB_ROWS_FAST_(FUNCTION, PLUMB_ROWS_AVX2_, 1, F32, VARIANT, BACKWARD, __VA_ARGS__)         \
  PLUMB_ROWS_FAST_(FUNCTION, PLUMB_ROWS_AVX512_, 2, F32, VARIANT, BACKWARD, __VA_ARGS__)       \
  PLUMB_ROWS_FAST_(FUNCTION, PLUMB_ROWS_AVX2_, 1, BF16, VARIANT, BACKWARD, __VA_ARGS__)        \
  PLUMB_ROWS_FAST_(FUNCTION, PLUMB_ROWS_AVX512_, 2, BF16, VARIANT, BACKWARD, __VA_ARGS__)      \
  PLUMB_ROWS_FAST_(FUNCTION, PLUMB_ROWS_BF16_, 3, BF16, VARIANT, BACKWARD, __VA_ARGS__)        \
  static plumb_status FUNCTION##Rows(PLUMB_ROWS_PARAMETERS_) {                                 \
    const int level = plumb_rows_level_();                                                     \
    if (level > 0 && call->dtype == PLUMB_DTYPE_F32) {                                         \
      return (level > 1 ? FUNCTION##F32Level2 : FUNCTION##F32Level1)(norm, call, residual, r0, \
                                                                     r1);                      \
    }                                                                                          \
    if (level > 0 && call->dtype == PLUMB_DTYPE_BF16) {                                        \
      return (level > 2   ? FUNCTION##BF16Level3                                               \
              : level > 1 ? FUNCTION##BF16Level2                                               \
                          : FUNCTION##BF16Level1)(norm, call, residual, r0, r1);               \
    }                                                                                          \
    return FUNCTION##Base(norm, call, residual, r0, r1);                                       \
  }
#else
#define PLUMB_ROWS_LEVELS_(FUNCTION, VARIANT, BACKWARD, ...)   \
  PLUMB_ROWS_BASE_(FUNCTION, VARIANT, BACKWARD, __VA_ARGS__)   \
  static plumb_status FUNCTION##Rows(PLUMB_ROWS_PARAMETERS_) { \
    return FUNCTION##Base(norm, call, residual, r0, r1);       \
  }
#endif

#endif /* PLUMB_NORM_ROWS_IMPL_H */
