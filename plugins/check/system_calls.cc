#include "plugins/check/system_calls.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumb::check {
namespace {

// Closing a descriptor that cannot be: harmless, and seen by the tracer.
constexpr int kBegin = -0x70626e, kEnd = -0x706264;
constexpr int kNotTraced = 77;

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, __WALL) < 0) {
    if (errno != EINTR) return 0;
  }
  return status;
}

[[noreturn]] void RunTraced(const std::function<void()>& body) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotTraced);
  raise(SIGSTOP);
  try {
    body();
  } catch (...) {
    // The checks that look at results say what it was.
  }
  _exit(0);
}

// The call that a stopped process is about to make; none at another stop.
std::optional<SystemCall> Entering(pid_t pid) {
  __ptrace_syscall_info info = {};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0) return std::nullopt;
  if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return std::nullopt;
  SystemCall call;
  call.number = static_cast<long>(info.entry.nr);
  for (size_t i = 0; i < call.arguments.size(); ++i) call.arguments[i] = info.entry.args[i];
  return call;
}

}  // namespace

std::string NameOfSystemCall(const SystemCall& call) {
  constexpr std::pair<long, const char*> kNames[] = {
      {SYS_openat, "openat"}, {SYS_write, "write"},   {SYS_read, "read"},
      {SYS_mmap, "mmap"},     {SYS_futex, "futex"},   {SYS_clock_nanosleep, "clock_nanosleep"},
      {SYS_clone3, "clone3"}, {SYS_socket, "socket"}, {SYS_rt_sigaction, "rt_sigaction"},
      {SYS_execve, "execve"}, {SYS_getpid, "getpid"}, {SYS_sched_yield, "sched_yield"}};
  for (const auto& [number, name] : kNames) {
    if (number == call.number) return absl::StrCat("calls the system's ", name);
  }
  return absl::StrCat("makes system call ", call.number);
}

void BeginTraced() { syscall(SYS_close, kBegin); }
void EndTraced() { syscall(SYS_close, kEnd); }

std::optional<SystemCall> FirstSystemCall(const std::function<void()>& body,
                                          const std::function<bool(const SystemCall&)>& is_allowed,
                                          bool* traced) {
  const pid_t pid = fork();
  if (pid == 0) RunTraced(body);
  const int first = pid < 0 ? 0 : WaitFor(pid);
  if (!WIFSTOPPED(first) ||
      ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) {
    if (pid > 0 && WIFSTOPPED(first)) {
      kill(pid, SIGKILL);
      WaitFor(pid);
    }
    *traced = false;
    return std::nullopt;
  }
  bool watching = false;
  for (int signal = 0;;) {
    if (ptrace(PTRACE_SYSCALL, pid, nullptr, static_cast<long>(signal)) != 0) break;
    const int status = WaitFor(pid);
    if (!WIFSTOPPED(status)) return std::nullopt;  // ended
    const bool at_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = at_call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    if (!at_call) continue;
    const std::optional<SystemCall> call = Entering(pid);
    if (!call.has_value()) continue;
    const int argument = static_cast<int>(call->arguments[0]);
    const bool is_mark = call->number == SYS_close && (argument == kBegin || argument == kEnd);
    if (is_mark) watching = argument == kBegin;
    if (is_mark || !watching || is_allowed(*call)) continue;
    // The end of the body with the watch on is the end of the process, not a call of the plugin.
    const bool ends = call->number == SYS_exit_group && argument == 0;
    kill(pid, SIGKILL);
    WaitFor(pid);
    return ends ? std::nullopt : call;
  }
  kill(pid, SIGKILL);
  WaitFor(pid);
  return std::nullopt;
}

}  // namespace plumb::check
