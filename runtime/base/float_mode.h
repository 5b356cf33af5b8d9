// SPDX-License-Identifier: Apache-2.0
// The calling thread's floating-point mode: rounding, traps, and the treatment of denormals.
#ifndef PLUMB_RUNTIME_BASE_FLOAT_MODE_H_
#define PLUMB_RUNTIME_BASE_FLOAT_MODE_H_

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace plumb {

// A floating-point mode; a value. Workers of the pool adopt the mode of the caller whose tasks they
// run, so that results do not depend on the thread.
class FloatMode {
 public:
  static FloatMode Current() {
#if defined(__SSE2__)
    return FloatMode(_mm_getcsr() & ~kFlags);
#elif defined(__aarch64__)
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return FloatMode(control);
#else
    return FloatMode(0);
#endif
  }

  // Returns this mode with denormal results flushed to zero and denormal operands read as zero. A
  // denormal costs an Intel processor some 150 cycles; the optimizer moments of rows without a
  // gradient decay into denormals within some hundred steps.
  FloatMode WithoutDenormals() const {
#if defined(__SSE2__)
    constexpr uint64_t kDenormalsAreZero = 1u << 6, kFlushToZero = 1u << 15;
    return FloatMode(control_ | kDenormalsAreZero | kFlushToZero);
#elif defined(__aarch64__)
    constexpr uint64_t kFlushToZero = 1u << 24;  // for operands and results
    return FloatMode(control_ | kFlushToZero);
#else
    return *this;
#endif
  }

  // Makes this the calling thread's mode. Raised exception flags stay raised.
  void Install() const {
#if defined(__SSE2__)
    const uint32_t now = _mm_getcsr();
    if ((now & ~kFlags) != control_) _mm_setcsr(static_cast<uint32_t>(control_) | (now & kFlags));
#elif defined(__aarch64__)
    if (Current() != *this) asm volatile("msr fpcr, %0" : : "r"(control_));
#endif
  }

  bool operator==(const FloatMode& other) const { return control_ == other.control_; }
  bool operator!=(const FloatMode& other) const { return control_ != other.control_; }

 private:
#if defined(__SSE2__)
  static constexpr uint32_t kFlags = 0x3f;  // MXCSR bits of the exceptions raised so far
#endif
  explicit FloatMode(uint64_t control) : control_(control) {}
  uint64_t control_;  // MXCSR or FPCR; 0 on other processors
};

// Treats denormals as zero on the calling thread, and on the workers of its jobs, while it lives;
// then restores the mode.
class ScopedNoDenormals {
 public:
  ScopedNoDenormals() : before_(FloatMode::Current()) { before_.WithoutDenormals().Install(); }
  ~ScopedNoDenormals() { before_.Install(); }
  ScopedNoDenormals(const ScopedNoDenormals&) = delete;
  ScopedNoDenormals& operator=(const ScopedNoDenormals&) = delete;

 private:
  const FloatMode before_;
};

// Sets the calling thread to the mode that a process starts with while it lives; then restores the
// mode and the flags of raised exceptions.
class ScopedDefaultFloatMode {
 public:
#if defined(__SSE2__)
  ScopedDefaultFloatMode() : before_(_mm_getcsr()) {
    constexpr uint32_t kAtStart = 0x1f80;
    if (before_ != kAtStart) _mm_setcsr(kAtStart);
  }
  ~ScopedDefaultFloatMode() {
    if (_mm_getcsr() != before_) _mm_setcsr(before_);
  }
#elif defined(__aarch64__)
  ScopedDefaultFloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("mrs %0, fpsr" : "=r"(flags_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~ScopedDefaultFloatMode() {
    asm volatile("msr fpcr, %0" : : "r"(before_));
    asm volatile("msr fpsr, %0" : : "r"(flags_));
  }
#else
  ScopedDefaultFloatMode() = default;
#endif
  ScopedDefaultFloatMode(const ScopedDefaultFloatMode&) = delete;
  ScopedDefaultFloatMode& operator=(const ScopedDefaultFloatMode&) = delete;

 private:
#if defined(__SSE2__)
  const uint32_t before_;
#elif defined(__aarch64__)
  uint64_t before_, flags_;
#endif
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_FLOAT_MODE_H_
