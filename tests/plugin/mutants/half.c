/* SPDX-License-Identifier: Apache-2.0 */
/* y = x / 2: a norm without errors, or with one error that a macro selects. */
#include <stdio.h>
#include <stdlib.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "plumb/norm_plugin.h"

#ifndef HALF_ID
#define HALF_ID "org.example.half"
#endif
#ifndef HALF_VERSION
#define HALF_VERSION "1.0.0"
#endif

#if defined(HALF_MAJOR_TWO)
static const plumb_norm_note the_note
    __attribute__((used, section(PLUMB_NORM_NOTE_SECTION), aligned(4))) = {
        6, 72, PLUMB_NORM_NOTE_TYPE, PLUMB_NORM_NOTE_OWNER, 2, 0, HALF_ID};
#elif defined(HALF_NOTE_LIES)
PLUMB_NORM_NOTE("org.example.promised");
#else
PLUMB_NORM_NOTE(HALF_ID);
#endif

int setenv(const char* name, const char* value, int overwrite);

/* Records for the tests that code of this file has run. */
__attribute__((constructor)) static void Ran(void) { setenv("PLUMB_TEST_HALF_RAN", HALF_ID, 1); }

#if defined(HALF_FLUSHES_DENORMALS)
/* Does the same as the code that clang, and gcc before 13, link into a library for -ffast-math. */
__attribute__((constructor)) static void FlushDenormals(void) {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | (1u << 24)));
#endif
}
#endif

struct plumb_norm_instance {
  uint32_t dim;
};

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host, (void)values;
  if (dim == 13) {
    snprintf(err, cap, "13 brings bad luck");
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* instance = malloc(sizeof(*instance));
  if (instance == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  instance->dim = dim;
  *out = instance;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* instance) { free(instance); }

static plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  (void)instance;
  out->tensor_stride = sizeof(plumb_tensor_def);
  return PLUMB_OK;
}

static plumb_status Halve(const plumb_norm_call* call, const void* from, int64_t from_pitch,
                          void* to, int64_t to_pitch, int64_t r0, int64_t r1) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  for (int64_t r = r0; r < r1; ++r) {
    const float* in = (const float*)(const void*)((const char*)from + r * from_pitch);
    float* out = (float*)(void*)((char*)to + r * to_pitch);
    for (uint32_t i = 0; i < call->dim; ++i) out[i] = in[i] / 2;
  }
  return PLUMB_OK;
}

static plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  (void)instance;
  return Halve(call, call->x, call->x_pitch, call->y, call->y_pitch, r0, r1);
}

#if !defined(HALF_MISSING_BACKWARD)
static plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  (void)instance;
  return Halve(call, call->dy, call->dy_pitch, call->dx, call->dx_pitch, r0, r1);
}
#endif

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = HALF_ID,
    .name = "Half",
    .version = HALF_VERSION,
    .dtypes = PLUMB_DTYPE_F32,
#if defined(HALF_UNKNOWN_FLAG)
    .flags = 1u << 20,
#endif
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
#if !defined(HALF_MISSING_BACKWARD)
    .backward = Backward,
#endif
};

#if defined(HALF_MAJOR_TWO)
#define ENTRY plumb_norm_plugin_v2
#elif defined(HALF_NO_ENTRY)
#define ENTRY some_other_function
#else
#define ENTRY plumb_norm_plugin_v1
#endif
PLUMB_EXPORT const plumb_norm_plugin* ENTRY(uint32_t index);
const plumb_norm_plugin* ENTRY(uint32_t index) { return index == 0 ? &the_norm : NULL; }
