/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm, y = g x / sqrt(<x^2> + 1e-5), written by hand. norm_benchmark compares the shipped
 * rms_norm with it, to separate the overhead of plumb/norm_rows.h from the limits of the processor.
 * It guarantees less than the header: no fixed order of sums, no identical bits on every
 * instruction set, no f64, no attribute, no residual extension. Rows that are no multiple of 64
 * elements, and processors other than x86-64 with AVX2, use plain loops. LIMIT_MAX_LEVEL (0 to 3:
 * plain, AVX2, AVX-512, AVX-512 with bf16) is the highest instruction set. */
#include <math.h>
#include <stdlib.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("org.example.limit_rms_norm");

#ifndef LIMIT_MAX_LEVEL
#define LIMIT_MAX_LEVEL 3
#endif

struct plumb_norm_instance {
  plumb_tensor_def gain;
};

/* -- Plain loops ------------------------------------------------------------------------------- */

static float At(const void* row, size_t i, int bf16) {
  return bf16 ? plumb_bf16_to_float(((const plumb_bf16*)row)[i]) : ((const float*)row)[i];
}
static void Put(void* row, size_t i, float v, int bf16) {
  if (bf16) {
    ((plumb_bf16*)row)[i] = plumb_bf16_from_float(v);
  } else {
    ((float*)row)[i] = v;
  }
}

static void ForwardPlain(const plumb_norm_call* call, int64_t row, int64_t r1) {
  const int bf16 = call->dtype == PLUMB_DTYPE_BF16;
  const float* gain = (const float*)call->params[0];
  for (; row < r1; ++row) {
    const void* x = PLUMB_CONST_ROW(char, call->x, call->x_pitch, row);
    void* y = PLUMB_ROW(char, call->y, call->y_pitch, row);
    double sum = 0;
    for (size_t i = 0; i < call->dim; ++i) sum += (double)At(x, i, bf16) * (double)At(x, i, bf16);
    const float r = (float)(1 / sqrt(sum / call->dim + 1e-5));
    if (call->saved != NULL) *PLUMB_ROW(float, call->saved, call->saved_pitch, row) = r;
    for (size_t i = 0; i < call->dim; ++i) Put(y, i, At(x, i, bf16) * r * gain[i], bf16);
  }
}

static void BackwardPlain(const plumb_norm_call* call, int64_t row, int64_t r1) {
  const int bf16 = call->dtype == PLUMB_DTYPE_BF16;
  const float* gain = (const float*)call->params[0];
  float* dgain = (float*)call->dparams[0];
  for (; row < r1; ++row) {
    const void* x = PLUMB_CONST_ROW(char, call->x, call->x_pitch, row);
    const void* dy = PLUMB_CONST_ROW(char, call->dy, call->dy_pitch, row);
    void* dx = PLUMB_ROW(char, call->dx, call->dx_pitch, row);
    const float r = *PLUMB_CONST_ROW(float, call->saved, call->saved_pitch, row);
    double sum = 0;
    for (size_t i = 0; i < call->dim; ++i) {
      sum += (double)(At(dy, i, bf16) * gain[i]) * (double)(At(x, i, bf16) * r);
    }
    const float mean = (float)(sum / call->dim);
    for (size_t i = 0; i < call->dim; ++i) {
      const float h = At(x, i, bf16) * r, d = At(dy, i, bf16);
      dgain[i] += d * h;
      Put(dx, i, r * (d * gain[i] - h * mean), bf16);
    }
  }
}

/* -- Vectors ----------------------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__) && LIMIT_MAX_LEVEL > 0
#define LIMIT_X86 1
#include <immintrin.h>

#define LIMIT_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define LIMIT_PRAGMA(text) _Pragma(#text)
#define LIMIT_BEGIN(TARGET) \
  LIMIT_PRAGMA(clang attribute push(__attribute__((target(TARGET))), apply_to = function))
#define LIMIT_END _Pragma("clang attribute pop")
#else
#define LIMIT_PRAGMA(text) _Pragma(#text)
#define LIMIT_BEGIN(TARGET) _Pragma("GCC push_options") LIMIT_PRAGMA(GCC target(TARGET))
#define LIMIT_END _Pragma("GCC pop_options")
#endif

LIMIT_BEGIN("avx2,fma")
#include "limit_rms_norm_avx2.h"
LIMIT_END

LIMIT_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define NAME(f) f##Avx512
#define NATIVE 0
#include "limit_rms_norm_avx512.h"
#undef NAME
#undef NATIVE
LIMIT_END

LIMIT_BEGIN("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define NAME(f) f##Bf16
#define NATIVE 1
#include "limit_rms_norm_avx512.h"
#undef NAME
#undef NATIVE
LIMIT_END

static int Level(void) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  if (LIMIT_MAX_LEVEL < 2 || !__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return 1;
  }
  return LIMIT_MAX_LEVEL > 2 && __builtin_cpu_supports("avx512bf16") ? 3 : 2;
}

/* Results that far exceed the L2 cache are stored past all caches. */
enum { kPast = 4 << 20 };
static int Past(const plumb_norm_call* call) {
  const int64_t bytes = call->rows * (int64_t)call->dim * (call->dtype == PLUMB_DTYPE_BF16 ? 2 : 4);
  return (call->flags & PLUMB_CALL_ALIGNED64) != 0 && bytes >= kPast;
}
#endif

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  (void)norm;
#if LIMIT_X86
  const int level = call->dim % 64 == 0 ? Level() : 0, past = Past(call);
  if (level == 3) ForwardBf16(call, r0, r1, past);
  if (level == 2) ForwardAvx512(call, r0, r1, past);
  if (level == 1) ForwardAvx2(call, r0, r1, past);
  if (level > 0 && past) _mm_sfence();
  if (level > 0) return PLUMB_OK;
#endif
  ForwardPlain(call, r0, r1);
  return PLUMB_OK;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  (void)norm;
#if LIMIT_X86
  const int level = call->dim % 64 == 0 ? Level() : 0, past = Past(call);
  if (level == 3) BackwardBf16(call, r0, r1, past);
  if (level == 2) BackwardAvx512(call, r0, r1, past);
  if (level == 1) BackwardAvx2(call, r0, r1, past);
  if (level > 0 && past) _mm_sfence();
  if (level > 0) return PLUMB_OK;
#endif
  BackwardPlain(call, r0, r1);
  return PLUMB_OK;
}

/* -- The table --------------------------------------------------------------------------------- */

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host, (void)values, (void)err, (void)cap;
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->gain.name = "weight";
  norm->gain.doc = "The gain.";
  norm->gain.ndim = 1;
  norm->gain.dims[0] = dim;
  norm->gain.init = PLUMB_INIT_ONES;
  norm->gain.lr_scale = 1;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->gain;
  out->saved_per_row = 1;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "org.example.limit_rms_norm",
    .name = "RMSNorm",
    .version = "1.0.0",
    .vendor = "",
    .license = "",
    .doc = "y = g x / sqrt(mean(x^2) + 1e-5).",
    .flags = PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16,
    .attr_stride = sizeof(plumb_attr_def),
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
