// Watches the system calls of a stretch of code, by running it in a child process under ptrace.
// Linux 5.3 and later. One thread.
#ifndef PLUMB_PLUGINS_CHECK_SYSTEM_CALLS_H_
#define PLUMB_PLUGINS_CHECK_SYSTEM_CALLS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace plumb::check {

struct SystemCall {
  long number = -1;  // SYS_*
  std::array<uint64_t, 6> arguments{};
};
std::string NameOfSystemCall(const SystemCall& call);  // "calls openat"

// Mark, inside of the body below, where watching begins and ends.
void BeginTraced();
void EndTraced();

// Runs `body` in a forked process. The first watched call that `is_allowed` refuses, none if there
// is none; the process is killed at it. *traced becomes false where the kernel or a sandbox
// forbids tracing, and nothing has been watched then.
std::optional<SystemCall> FirstSystemCall(const std::function<void()>& body,
                                          const std::function<bool(const SystemCall&)>& is_allowed,
                                          bool* traced);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_SYSTEM_CALLS_H_
