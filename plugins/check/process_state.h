// The process state that a library could change when it is loaded, as names and values that can be
// compared. A value; taking it changes nothing.
#ifndef PLUMB_PLUGINS_CHECK_PROCESS_STATE_H_
#define PLUMB_PLUGINS_CHECK_PROCESS_STATE_H_

#include <map>
#include <string>
#include <vector>

namespace plumb::check {

class ProcessState {
 public:
  // As it is now, in the calling thread.
  static ProcessState Take();

  // What differs in `after`: "floating-point control is 0x9fc0, was 0x1f80", "SIGPIPE ...".
  std::vector<std::string> ChangesTo(const ProcessState& after) const;
  // What differs now. A thread that has been joined may be counted for a moment yet: waits for it.
  std::vector<std::string> ChangesSince() const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PROCESS_STATE_H_
