// SPDX-License-Identifier: Apache-2.0
// State that a plugin could change: the floating-point control of the calling thread, and the
// process as names and values that can be compared. Reading it changes nothing.
#ifndef PLUMB_PLUGINS_CHECK_STATE_H_
#define PLUMB_PLUGINS_CHECK_STATE_H_

#include <cstdint>
#include <map>
#include <string>

namespace plumb::check {

// Floating-point control register (MXCSR or FPCR) of the calling thread, without exception flags;
// always 0 on other machines.
uint64_t FloatControl();
void SetFloatControl(uint64_t control);

// Scope in which denormals are flushed to zero, or are not. Restores the previous state.
class ScopedFlushing {
 public:
  explicit ScopedFlushing(bool flush);
  ~ScopedFlushing() { SetFloatControl(before_); }
  ScopedFlushing(const ScopedFlushing&) = delete;
  ScopedFlushing& operator=(const ScopedFlushing&) = delete;

 private:
  const uint64_t before_;
};

std::string NameOfSignal(int signal);  // "SIGSEGV"

// Process state that a library could change. A value.
class ProcessState {
 public:
  // Returns the current state, as seen by the calling thread.
  static ProcessState Take();

  // Returns the differences to the current state: "the umask is 0000, was 0022; ..."; "" if there
  // are none. Waits briefly for joined threads, which the system may still count.
  std::string ChangesSince() const;

 private:
  std::string ChangesTo(const ProcessState& after) const;

  std::map<std::string, std::string> values_;
};

// Watch on the process from construction to End(). Redirects printed text to memory. At most one
// may exist; not thread-safe.
class ProcessWatch {
 public:
  ProcessWatch();
  ~ProcessWatch() { Restore(); }
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Returns the changes, and the amount of printed text.
  std::string End();

 private:
  int64_t Restore();

  const ProcessState before_ = ProcessState::Take();
  int memory_;
  int saved_[3] = {-1, -1, -1};  // stdout and stderr
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_STATE_H_
