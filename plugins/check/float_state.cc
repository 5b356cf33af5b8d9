// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/float_state.h"

#include <cfenv>
#include <cinttypes>
#include <cstdio>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace plumb::check {
namespace {
#if defined(__SSE__)
constexpr uint64_t kFlags = 0x3f;    // sticky flags, raised by arithmetic
constexpr uint64_t kFlush = 0x8040;  // FTZ, DAZ
#else
constexpr uint64_t kFlags = 0;
constexpr uint64_t kFlush = 1 << 24;  // FPCR.FZ
#endif
}  // namespace

FloatState FloatState::Current() {
  FloatState state;
#if defined(__SSE__)
  state.control = _mm_getcsr() & ~kFlags;
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(state.control));
#endif
  state.rounding = std::fegetround();
  return state;
}

FloatState FloatState::Flushing(bool flush) const {
  FloatState state = *this;
  state.control = flush ? control | kFlush : control & ~kFlush;
  return state;
}

void FloatState::Apply() const {
  std::fesetround(rounding);
#if defined(__SSE__)
  _mm_setcsr(static_cast<unsigned>(control));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(control));
#endif
}

std::string FloatState::Text() const {
  char text[64];
  std::snprintf(text, sizeof(text), "0x%" PRIx64 ", rounding %d", control, rounding);
  return text;
}

}  // namespace plumb::check
