// SPDX-License-Identifier: Apache-2.0
// ProcessState: process state that loading a library could change, as names and values that can be
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
  // Returns the current state, as seen by the calling thread.
  static ProcessState Take();

  // Returns the differences to the current state: "the umask is 0000, was 0022". Waits briefly for
  // joined threads, which the system may still count.
  std::vector<std::string> ChangesSince() const;

 private:
  std::vector<std::string> ChangesTo(const ProcessState& after) const;

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

  // Returns the changes and the amount of printed text: "the umask is 0000, was 0022; 12 bytes are
  // printed"; "" if there are none.
  std::string End();

 private:
  int64_t Restore();

  const ProcessState before_ = ProcessState::Take();
  int memory_;
  int saved_[3] = {-1, -1, -1};  // stdout and stderr
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PROCESS_STATE_H_
