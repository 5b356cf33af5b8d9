// SPDX-License-Identifier: Apache-2.0
// FloatState: floating-point control state of the calling thread: rounding mode, flushing of
// denormals, exception masks; not the exception flags. A value.
#ifndef PLUMB_PLUGINS_CHECK_FLOAT_STATE_H_
#define PLUMB_PLUGINS_CHECK_FLOAT_STATE_H_

#include <cstdint>
#include <string>

namespace plumb::check {

struct FloatState {
  uint64_t control = 0;  // MXCSR or FPCR; 0 on other machines
  int rounding = 0;      // from <cfenv>, which includes the x87 unit

  static FloatState Current();
  // Returns this state with flush-to-zero and denormals-are-zero switched on or off.
  FloatState Flushing(bool flush) const;
  void Apply() const;
  std::string Text() const;

  bool operator==(const FloatState& other) const {
    return control == other.control && rounding == other.rounding;
  }
};

// Scope in which denormals are flushed to zero, or are not. Restores the previous state.
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
