// A process in which the plugin has made no instance yet: what is computed there cannot depend on
// earlier calls. Not thread-safe.
#ifndef PLUMB_PLUGINS_CHECK_FRESH_PROCESS_H_
#define PLUMB_PLUGINS_CHECK_FRESH_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace plumb::check {

class FreshProcess {
 public:
  // Forks: what this process is now, every task begins with.
  explicit FreshProcess(std::function<std::string(const std::string&)> task);
  ~FreshProcess();
  FreshProcess(const FreshProcess&) = delete;
  FreshProcess& operator=(const FreshProcess&) = delete;

  // The task's answer, from a fork of the process as it was. None where the system gave no process,
  // or the task ended it.
  std::optional<std::string> Answer(const std::string& question);

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_FRESH_PROCESS_H_
