/* What -ffast-math links into a library, with clang and with gcc before 13: a constructor switches
   denormals off, for the whole thread. */
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#include "base_norm.h"

__attribute__((constructor)) static void FlushDenormals(void) {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | (1u << 24)));
#endif
}
