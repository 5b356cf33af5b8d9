/* plumb/norm_rows_impl.h: how plumb/norm_rows.h is made, which includes it. Not for authors: any
 * name in it may change with the next version.
 *
 * PLUMB_ROWS_BODY_ makes one always-inlined function for each direction and element type, in which
 * the author's macros are expanded; PLUMB_ROWS_LEVELS_ inlines it into one function for each
 * instruction set, where the compiler turns its loops into vector code, and one that chooses. */
#ifndef PLUMB_NORM_ROWS_IMPL_H
#define PLUMB_NORM_ROWS_IMPL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "plumb/norm_plugin.h"

PLUMB_ROWS_INLINE float plumb_abs_f32_(float v) { return fabsf(v); }
PLUMB_ROWS_INLINE double plumb_abs_f64_(double v) { return fabs(v); }
PLUMB_ROWS_INLINE float plumb_sqrt_f32_(float v) { return sqrtf(v); }
PLUMB_ROWS_INLINE double plumb_sqrt_f64_(double v) { return sqrt(v); }
PLUMB_ROWS_INLINE float plumb_fma_f32_(float a, float b, float c) { return fmaf(a, b, c); }
PLUMB_ROWS_INLINE double plumb_fma_f64_(double a, double b, double c) { return fma(a, b, c); }

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>
#define PLUMB_ROWS_X86_ 1
#else
#define PLUMB_ROWS_X86_ 0
#endif
#ifndef PLUMB_ROWS_MAX_LEVEL
#define PLUMB_ROWS_MAX_LEVEL 2
#endif

/* y may be x and dx may be dy, but element i only ever meets element i. */
#if defined(__clang__)
#define PLUMB_ROWS_IVDEP_ _Pragma("clang loop vectorize(assume_safety)")
/* Where a loop stays as it is, with little optimization or a sanitizer, there is nothing to do. */
#pragma clang diagnostic ignored "-Wpass-failed"
#elif defined(__GNUC__)
#define PLUMB_ROWS_IVDEP_ _Pragma("GCC ivdep")
#else
#define PLUMB_ROWS_IVDEP_
#endif

enum {
  PLUMB_ROWS_BLOCK_ = 64,        /* elements that are computed before they are stored */
  PLUMB_ROWS_AHEAD_ = 4,         /* rows between the one that is written and the one prefetched */
  PLUMB_ROWS_STREAM_ = 20 << 20, /* results of so many bytes a call pass by the caches: two thirds
                                    of a last-level cache of 32 MiB, where it begins to pay */
};

#define PLUMB_ROWS_ELEMENT_(at)                                           \
  const size_t i = (at);                                                  \
  const real x = plumb_rows_load_(x_row[i]);                              \
  const real dy = plumb_backward ? plumb_rows_load_(dy_row[i]) : (real)0; \
  (void)i, (void)x, (void)dy;

/* `statement` for the elements that go to partial sums, for those of a block, and for those after
 * the last of either. */
#define PLUMB_ROWS_FOR_PARTS_(statement)                       \
  PLUMB_ROWS_IVDEP_                                            \
  for (size_t plumb_k = 0; plumb_k < plumb_parts; ++plumb_k) { \
    PLUMB_ROWS_ELEMENT_(plumb_at + plumb_k)                    \
    statement;                                                 \
  }
#define PLUMB_ROWS_FOR_BLOCK_(statement)                             \
  PLUMB_ROWS_IVDEP_                                                  \
  for (size_t plumb_k = 0; plumb_k < PLUMB_ROWS_BLOCK_; ++plumb_k) { \
    PLUMB_ROWS_ELEMENT_(plumb_at + plumb_k)                          \
    statement;                                                       \
  }
#define PLUMB_ROWS_FOR_REST_(statement)      \
  for (; plumb_at < plumb_end; ++plumb_at) { \
    PLUMB_ROWS_ELEMENT_(plumb_at)            \
    statement;                               \
  }

PLUMB_ROWS_INLINE void plumb_rows_prefetch_(const void* at, size_t bytes) {
#if defined(__GNUC__)
  for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char*)at + k);
#else
  (void)at, (void)bytes;
#endif
}

/* Past the caches where the place is a whole number of lines. */
PLUMB_ROWS_INLINE void plumb_rows_stream_(void* to, const void* from, size_t bytes) {
#if PLUMB_ROWS_X86_
  if (((uintptr_t)to & 63) == 0) {
    for (size_t k = 0; k < bytes; k += 16) {
      _mm_stream_si128((__m128i*)(void*)((char*)to + k),
                       _mm_loadu_si128((const __m128i*)(const void*)((const char*)from + k)));
    }
    return;
  }
#endif
  memcpy(to, from, bytes);
}

PLUMB_ROWS_INLINE void plumb_rows_fence_(int stream) {
#if PLUMB_ROWS_X86_
  if (stream) _mm_sfence();
#else
  (void)stream;
#endif
}

#define PLUMB_ROWS_SAME_(v) (v)
#define PLUMB_ROWS_FOR_TYPE_(S, ELEMENT, REAL, LOAD, STORE)                                 \
  PLUMB_ROWS_INLINE REAL plumb_rows_load_##S(ELEMENT v) { return LOAD(v); }                 \
  PLUMB_ROWS_INLINE void plumb_rows_store_##S(ELEMENT* to, REAL v) { *to = STORE(v); }      \
  /* The row to be normalized: of x, or of x + res once that is stored. */                  \
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

/* Partial sums are folded by adding halves to halves until one number is left. With gcc they are
 * two vectors of 64 bytes, as it would leave an array in memory. */
#if defined(__GNUC__) && !defined(__clang__)
#define PLUMB_ROWS_PARTS_(S, part)                        \
  enum { plumb_parts = (int)(128 / sizeof(S)) };          \
  typedef S plumb_lanes __attribute__((vector_size(64))); \
  PLUMB_ROWS_MORE_PARTS_(S, part)
#define PLUMB_ROWS_MORE_PARTS_(S, part) plumb_lanes part[2] = {{0}, {0}};
#define PLUMB_ROWS_ADD_PARTS_(part, term)               \
  {                                                     \
    plumb_lanes plumb_pair[2];                          \
    memcpy(plumb_pair, term, sizeof(plumb_pair));       \
    part[0] += plumb_pair[0], part[1] += plumb_pair[1]; \
  }
PLUMB_ROWS_INLINE float plumb_rows_fold_f32(const void* parts) {
  typedef float lanes __attribute__((vector_size(64)));
  typedef int32_t order __attribute__((vector_size(64)));
  const order by8 = {8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7};
  const order by4 = {4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11};
  const order by2 = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
  lanes v[2];
  memcpy(v, parts, sizeof(v));
  lanes s = v[0] + v[1];
  s += __builtin_shuffle(s, by8);
  s += __builtin_shuffle(s, by4);
  s += __builtin_shuffle(s, by2);
  return s[0] + s[1];
}
PLUMB_ROWS_INLINE double plumb_rows_fold_f64(const void* parts) {
  typedef double lanes __attribute__((vector_size(64)));
  typedef int64_t order __attribute__((vector_size(64)));
  const order by4 = {4, 5, 6, 7, 0, 1, 2, 3}, by2 = {2, 3, 0, 1, 6, 7, 4, 5};
  lanes v[2];
  memcpy(v, parts, sizeof(v));
  lanes s = v[0] + v[1];
  s += __builtin_shuffle(s, by4);
  s += __builtin_shuffle(s, by2);
  return s[0] + s[1];
}
#else
#define PLUMB_ROWS_PARTS_(S, part)               \
  enum { plumb_parts = (int)(128 / sizeof(S)) }; \
  PLUMB_ROWS_MORE_PARTS_(S, part)
#define PLUMB_ROWS_MORE_PARTS_(S, part) S part[plumb_parts] = {0};
#define PLUMB_ROWS_ADD_PARTS_(part, term) \
  for (size_t plumb_k = 0; plumb_k < plumb_parts; ++plumb_k) part[plumb_k] += term[plumb_k];
PLUMB_ROWS_INLINE float plumb_rows_fold_f32(void* parts) {
  float* part = (float*)parts;
  for (size_t width = 16; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) part[k] += part[k + width];
  }
  return part[0];
}
PLUMB_ROWS_INLINE double plumb_rows_fold_f64(void* parts) {
  double* part = (double*)parts;
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) part[k] += part[k + width];
  }
  return part[0];
}
#endif
#define PLUMB_ROWS_FOLD_(S, part) \
  (S)(sizeof(S) == 4 ? (S)plumb_rows_fold_f32(part) : (S)plumb_rows_fold_f64(part))

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

/* Finds the row's operands. */
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

/* One direction for one type; inlined into a function for each instruction set and variant. */
#define PLUMB_ROWS_BODY_(FUNCTION, ROWS, BACKWARD, ELEMENT, REAL, WIDE, SUM_TYPE)               \
  PLUMB_ROWS_INLINE void FUNCTION(const plumb_norm_instance* norm, const plumb_norm_call* call, \
                                  const plumb_residual_call* residual, int64_t r0, int64_t r1,  \
                                  const int variant, const int fused) {                         \
    typedef ELEMENT element;                                                                    \
    typedef REAL real;                                                                          \
    typedef WIDE wide;                                                                          \
    typedef SUM_TYPE sum_type;                                                                  \
    enum { plumb_backward = BACKWARD };                                                         \
    const size_t dim = call->dim;                                                               \
    const element *x_row = NULL, *dy_row = NULL, *add_row = NULL, *later_row = NULL;            \
    element *y_row = NULL, *dx_row = NULL;                                                      \
    const int accumulate = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                       \
    const void* add = accumulate ? call->dx : residual == NULL ? NULL : residual->dsum;         \
    const int64_t add_pitch = accumulate         ? call->dx_pitch                               \
                              : residual == NULL ? 0                                            \
                                                 : residual->dsum_pitch;                        \
    const int stream = plumb_rows_streams_(call, residual, sizeof(element), plumb_backward);    \
    (void)norm, (void)variant, (void)fused, (void)dim, (void)add_pitch;                         \
    (void)x_row, (void)dy_row, (void)add_row, (void)later_row, (void)y_row, (void)dx_row;       \
    (void)sizeof(wide), (void)sizeof(sum_type);                                                 \
    ROWS plumb_rows_fence_(stream);                                                             \
  }

/* May results be stored past the caches? Not over operands, which are in them. */
PLUMB_ROWS_INLINE int plumb_rows_streams_(const plumb_norm_call* call,
                                          const plumb_residual_call* residual, size_t element_bytes,
                                          int backward) {
  const int adds =
      (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0 || (residual != NULL && residual->dsum != NULL);
  const void* in = backward ? call->dy : residual != NULL ? residual->sum : call->x;
  const void* out = backward ? call->dx : call->y;
  return (call->flags & PLUMB_CALL_ALIGNED64) != 0 && in != out && !(backward && adds) &&
         call->rows >= PLUMB_ROWS_STREAM_ / (int64_t)(call->dim * element_bytes);
}

#define PLUMB_ROWS_PARAMETERS_                                  \
  const plumb_norm_instance *norm, const plumb_norm_call *call, \
      const plumb_residual_call *residual, int64_t r0, int64_t r1
#define PLUMB_ROWS_VARIANTS_(FUNCTION, VARIANT, FUSED)  \
  switch (VARIANT) {                                    \
    case 0:                                             \
      FUNCTION(norm, call, residual, r0, r1, 0, FUSED); \
      return PLUMB_OK;                                  \
    case 1:                                             \
      FUNCTION(norm, call, residual, r0, r1, 1, FUSED); \
      return PLUMB_OK;                                  \
    default:                                            \
      FUNCTION(norm, call, residual, r0, r1, 2, FUSED); \
      return PLUMB_OK;                                  \
  }
/* The functions of level 0: the instruction set that the compiler is told of. */
#define PLUMB_ROWS_BASE_(FUNCTION, VARIANT)                                         \
  static plumb_status FUNCTION##Base(PLUMB_ROWS_PARAMETERS_) {                      \
    if (call->dtype == PLUMB_F32) PLUMB_ROWS_VARIANTS_(FUNCTION##F32, VARIANT, 0)   \
    if (call->dtype == PLUMB_BF16) PLUMB_ROWS_VARIANTS_(FUNCTION##Bf16, VARIANT, 0) \
    if (call->dtype == PLUMB_F64) PLUMB_ROWS_VARIANTS_(FUNCTION##F64, VARIANT, 0)   \
    return PLUMB_UNIMPLEMENTED;                                                     \
  }
#define PLUMB_ROWS_FAST_(FUNCTION, TYPE, VARIANT, TARGET)                                \
  __attribute__((target(TARGET))) static plumb_status FUNCTION(PLUMB_ROWS_PARAMETERS_) { \
    PLUMB_ROWS_VARIANTS_(TYPE, VARIANT, 1)                                               \
  }

#if PLUMB_ROWS_X86_ && PLUMB_ROWS_MAX_LEVEL > 0
#define PLUMB_ROWS_AVX2_ "avx2,fma"
#define PLUMB_ROWS_AVX512_ "avx512f,avx512bw,avx512dq,avx512vl,fma"
PLUMB_ROWS_INLINE int plumb_rows_level_(void) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  return PLUMB_ROWS_MAX_LEVEL > 1 && __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl")
             ? 2
             : 1;
}
#define PLUMB_ROWS_LEVELS_(FUNCTION, VARIANT)                                                     \
  PLUMB_ROWS_BASE_(FUNCTION, VARIANT)                                                             \
  PLUMB_ROWS_FAST_(FUNCTION##F32Avx2, FUNCTION##F32, VARIANT, PLUMB_ROWS_AVX2_)                   \
  PLUMB_ROWS_FAST_(FUNCTION##F32Avx512, FUNCTION##F32, VARIANT, PLUMB_ROWS_AVX512_)               \
  PLUMB_ROWS_FAST_(FUNCTION##Bf16Avx2, FUNCTION##Bf16, VARIANT, PLUMB_ROWS_AVX2_)                 \
  PLUMB_ROWS_FAST_(FUNCTION##Bf16Avx512, FUNCTION##Bf16, VARIANT, PLUMB_ROWS_AVX512_)             \
  static plumb_status FUNCTION##Rows(PLUMB_ROWS_PARAMETERS_) {                                    \
    const int level = plumb_rows_level_();                                                        \
    if (level > 0 && call->dtype == PLUMB_F32) {                                                  \
      return (level > 1 ? FUNCTION##F32Avx512 : FUNCTION##F32Avx2)(norm, call, residual, r0, r1); \
    }                                                                                             \
    if (level > 0 && call->dtype == PLUMB_BF16) {                                                 \
      return (level > 1 ? FUNCTION##Bf16Avx512 : FUNCTION##Bf16Avx2)(norm, call, residual, r0,    \
                                                                     r1);                         \
    }                                                                                             \
    return FUNCTION##Base(norm, call, residual, r0, r1);                                          \
  }
#else
#define PLUMB_ROWS_LEVELS_(FUNCTION, VARIANT)                  \
  PLUMB_ROWS_BASE_(FUNCTION, VARIANT)                          \
  static plumb_status FUNCTION##Rows(PLUMB_ROWS_PARAMETERS_) { \
    return FUNCTION##Base(norm, call, residual, r0, r1);       \
  }
#endif

#endif /* PLUMB_NORM_ROWS_IMPL_H */
