/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of the use of the host and of memory (checks R1 to R7). MUTANT_NAME selects one;
   mutants.txt lists them. */

#ifdef MUTANT_r1_allocates
/* Allocates in forward(), and frees the memory. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  void* volatile block = malloc(64); /* volatile: a compiler may drop the pair otherwise */
  free(block);
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_r2_counts_calls
/* Counts its calls in a static variable. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static volatile int calls;

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  calls = calls + 1;
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_r2_writes_instance
/* Writes into the instance, which other threads read. */
#define BASE_BACKWARD SpoiltBackward
#include "base_norm.h"

static plumb_status SpoiltBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  volatile uint32_t* note = &((plumb_norm_instance*)instance)->weight.reserved;
  *note = (uint32_t)call->rows;
  return BaseBackward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_r3_trusts_malloc
/* Does not check for a failed allocation. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  volatile char* block;
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status != PLUMB_OK) return status;
  block = (volatile char*)malloc(16);
  block[0] = 1;
  free((void*)block);
  return status;
}
#endif

#ifdef MUTANT_r3_keeps_half
/* Keeps its first block if the second allocation fails. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  plumb_norm_instance* instance = NULL;
  void* volatile block;
  const plumb_status status = BaseCreate(host, dim, values, &instance, err, cap);
  if (status != PLUMB_OK) return status;
  block = malloc(16);
  if (block == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  free(block);
  *out = instance;
  return PLUMB_OK;
}
#endif

#ifdef MUTANT_r4_leaks_memory
/* Leaks a block per instance. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  void* volatile block = malloc(16);
  if (block == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status != PLUMB_OK) free(block);
  return status;
}
#endif

#ifdef MUTANT_r4_leaks_file
/* Opens a file for each instance and closes none. */
#include <fcntl.h>
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status == PLUMB_OK && open("/dev/null", O_RDONLY) < 0) return status;
  return status;
}
#endif

#ifdef MUTANT_r6_flushes_denormals
/* Sets the processor to flush denormals, for speed, and does not restore the mode. */
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8000u);
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | (1u << 24)));
#endif
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_r6_resets_the_mode
/* Computes in the default mode and does not restore the host's. Only hosts that flush denormals
 * notice. */
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
#if defined(__SSE__)
  _mm_setcsr(0x1f80u);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
#endif
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_r7_never_ends
/* Iterates until convergence, which never happens if a row has both infinities. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (int64_t r = r0; r < r1 && call->dtype == PLUMB_DTYPE_F32 && instance->dim > 1; ++r) {
    const float* x = PLUMB_CONST_ROW(float, call->x, call->x_pitch, r);
    volatile double both = (double)x[0] + x[1]; /* Inf - Inf is NaN, which is not 0 */
    while (isinf(x[0]) && isinf(x[1]) && isnan(both)) both = both / 2;
  }
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_p1_slow
/* Waits between any two elements. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (volatile int64_t i = 0; i < 2 * (r1 - r0) * instance->dim; i = i + 1) {
  }
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_p2_slow_start
/* Waits before the first row of each call. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  for (volatile int i = 0; r0 < r1 && i < 1000000; i = i + 1) {
  }
  return BaseForward(instance, call, r0, r1);
}
#endif
