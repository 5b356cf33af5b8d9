// SPDX-License-Identifier: Apache-2.0
// The floating-point control state of the calling thread: rounding, flushing of denormals, masks of
// exceptions. Not the flags that arithmetic raises. A value.
#ifndef PLUMB_PLUGINS_CHECK_FLOAT_STATE_H_
#define PLUMB_PLUGINS_CHECK_FLOAT_STATE_H_

#include <cstdint>
#include <string>

namespace plumb::check {

struct FloatState {
  uint64_t control = 0;  // MXCSR or FPCR; 0 on other machines
  int rounding = 0;      // of <cfenv>, the x87 unit's too where there is one

  static FloatState Current();
  // The same state with denormal operands and results read and written as zero, or not.
  FloatState Flushing(bool flush) const;
  void Apply() const;
  std::string Text() const;

  bool operator==(const FloatState& other) const {
    return control == other.control && rounding == other.rounding;
  }
};

// Denormals are flushed to zero, or not, while this is in scope; then the state is that of before.
class ScopedFlushing {
 public:
  explicit ScopedFlushing(bool flush) : before_(FloatState::Current()) {
    before_.Flushing(flush).Apply();
  }
  ~ScopedFlushing() { before_.Apply(); }
  ScopedFlushing(const ScopedFlushing&) = delete;
  ScopedFlushing& operator=(const ScopedFlushing&) = delete;

 private:
  const FloatState before_;
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_FLOAT_STATE_H_
