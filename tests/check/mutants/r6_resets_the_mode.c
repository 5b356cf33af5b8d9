/* Computes in the mode that a program starts with, and leaves it so: seen by a host that flushes
 * denormals only. */
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
