// The calling thread's floating-point mode: rounding, traps, and what becomes of denormals.
#ifndef PLUMB_RUNTIME_BASE_FLOAT_MODE_H_
#define PLUMB_RUNTIME_BASE_FLOAT_MODE_H_

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace plumb {

// A value. The pool's workers take that of the caller whose tasks they run, so that results do not
// depend on which thread ran a task.
class FloatMode {
 public:
  static FloatMode Current() {
#if defined(__SSE2__)
    return FloatMode(_mm_getcsr());
#else
    return FloatMode(0);
#endif
  }

  // The same with denormal results flushed to zero and denormal operands read as zero. A denormal
  // costs an Intel processor some 150 cycles; moments of rows without a gradient decay into them
  // within some hundred steps.
  FloatMode WithoutDenormals() const {
    constexpr uint32_t kDenormalsAreZero = 1u << 6, kFlushToZero = 1u << 15;
    return FloatMode(control_ | kDenormalsAreZero | kFlushToZero);
  }

  // Makes it the calling thread's. Exception flags that were raised stay raised.
  void Install() const {
#if defined(__SSE2__)
    constexpr uint32_t kFlags = 0x3f;
    const uint32_t now = _mm_getcsr();
    if ((now & ~kFlags) != (control_ & ~kFlags)) _mm_setcsr((control_ & ~kFlags) | (now & kFlags));
#endif
  }

 private:
  explicit FloatMode(uint32_t control) : control_(control) {}
  uint32_t control_;
};

// Denormals are zero on the calling thread, and on workers in its jobs, while this is in scope; the
// mode of before is restored at the end.
class ScopedNoDenormals {
 public:
  ScopedNoDenormals() : before_(FloatMode::Current()) { before_.WithoutDenormals().Install(); }
  ~ScopedNoDenormals() { before_.Install(); }
  ScopedNoDenormals(const ScopedNoDenormals&) = delete;
  ScopedNoDenormals& operator=(const ScopedNoDenormals&) = delete;

 private:
  const FloatMode before_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_FLOAT_MODE_H_
