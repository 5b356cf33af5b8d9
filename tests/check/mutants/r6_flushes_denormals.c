/* Sets the processor to flush denormals, for speed, and leaves it so. */
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
