// SPDX-License-Identifier: Apache-2.0
// The process state that a library could change when it is loaded, as names and values that can be
// compared. A value; taking it changes nothing.
#ifndef PLUMB_PLUGINS_CHECK_PROCESS_STATE_H_
#define PLUMB_PLUGINS_CHECK_PROCESS_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plumb::check {

class ProcessState {
 public:
  // Takes the state as it is now, in the calling thread.
  static ProcessState Take();

  // Returns what differs now: "the umask is 0000, was 0022". A thread that has been joined may be
  // counted for a moment yet: waits for it.
  std::vector<std::string> ChangesSince() const;

 private:
  std::vector<std::string> ChangesTo(const ProcessState& after) const;

  std::map<std::string, std::string> values_;
};

// Watches the process from construction to End(). What is printed meanwhile goes to memory. One at a
// time; not thread-safe.
class ProcessWatch {
 public:
  ProcessWatch();
  ~ProcessWatch() { Restore(); }
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Returns what has changed, or was printed: "the umask is 0000, was 0022; 12 bytes are printed";
  // "" if nothing.
  std::string End();

 private:
  int64_t Restore();

  const ProcessState before_ = ProcessState::Take();
  int memory_;
  int saved_[3] = {-1, -1, -1};  // stdout and stderr
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PROCESS_STATE_H_
