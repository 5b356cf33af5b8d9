// SPDX-License-Identifier: Apache-2.0
#include "cli/plugin_faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "cli/output.h"
#include "cli/signal_text.h"
#include "runtime/app/plumb_api.h"

namespace plumb::cli {
namespace {

// Process that is watched; 0: none yet. A forked child is not watched. Globals, because a signal
// handler can access nothing else.
std::atomic<pid_t> watched_process{0};
constexpr int kAtWork = -1;
std::atomic<int> ended_with{kAtWork};
std::atomic_flag is_ending = ATOMIC_FLAG_INIT;

struct FaultName {
  int signal;
  const char* text;
};
constexpr FaultName kFaults[] = {
    {SIGSEGV, "SIGSEGV (invalid memory access, or stack overflow)"},
    {SIGBUS, "SIGBUS (invalid memory access)"},
    {SIGFPE, "SIGFPE (invalid integer arithmetic)"},
    {SIGILL, "SIGILL (illegal instruction)"},
    {SIGTRAP, "SIGTRAP (trap instruction)"},
    {SIGSYS, "SIGSYS (system call that is not allowed)"},
    {SIGABRT, "SIGABRT (abort(), a failed assertion, or an exception that nobody caught)"}};

// Returns to the first thread that calls it. All others block here until the process ends.
void BlockOtherThreads() {
  while (is_ending.test_and_set()) pause();
}

void AddWhere(const api::PluginCall& at, SignalText* text) {
  if (*at.operand == '\0') return;
  text->Add("\nat ");
  if (at.read_only != 0) {
    text->Add("byte ").Add(at.bytes).Add(" of ").Add(at.operand).Add(", which it may only read");
  } else if (at.bytes < 0) {
    text->Add(-at.bytes).Add(" bytes before ").Add(at.operand);
  } else {
    text->Add("byte ").Add(at.bytes).Add(" behind ").Add(at.operand);
  }
}

// Reader of /proc/self/maps, character by character. Async-signal-safe.
class Maps {
 public:
  Maps() : fd_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Maps() {
    if (fd_ >= 0) close(fd_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  char Next() {  // returns 0 at the end
    if (at_ == size_) {
      ssize_t n;
      do n = read(fd_, buffer_, sizeof(buffer_));
      while (n < 0 && errno == EINTR);
      if (n <= 0) return '\0';
      at_ = 0;
      size_ = static_cast<size_t>(n);
    }
    return buffer_[at_++];
  }
  // Reads a hexadecimal number and the character after it.
  uintptr_t NextNumber() {
    uintptr_t number = 0;
    for (;;) {
      const char c = Next();
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && (c < 'a' || c > 'f')) return number;
      number = number * 16 + static_cast<uintptr_t>(is_digit ? c - '0' : c - 'a' + 10);
    }
  }

 private:
  const int fd_;
  size_t at_ = 0, size_ = 0;
  char buffer_[1024];
};

// Writes the path of the file that is mapped at `address` to `path`, truncated to `capacity` bytes
// including the terminating 0. Returns false if no file is mapped there. Async-signal-safe.
bool FindMappedFile(const void* address, char* path, size_t capacity) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  Maps maps;
  for (;;) {
    // Format of a line: "begin-end rw-p offset device inode   path"
    const uintptr_t begin = maps.NextNumber(), end = maps.NextNumber();
    if (end == 0) return false;
    const bool is_here = wanted >= begin && wanted < end;
    size_t length = 0;
    for (char c = maps.Next(); c != '\n' && c != '\0'; c = maps.Next()) {
      if (length == 0 && c != '/') continue;
      if (is_here && length + 1 < capacity) path[length] = c;
      if (length + 1 < capacity) ++length;
    }
    if (!is_here) continue;
    path[length] = '\0';
    return length > 0;
  }
}

// Ends the process with a message that names the file whose mapping has no byte at `address` any
// more, because it was truncated after it was mapped. Returns if `address` is in no mapped file.
void EndIfFileWasCut(const void* address) {
  char path[PATH_MAX];
  if (!FindMappedFile(address, path, sizeof(path))) return;
  BlockOtherThreads();
  SignalText text;
  text.Add("error: ").Add(path).Add(
      ": was truncated while it was in use: bytes that it had when it was opened are gone");
  text.Write();
  EndProcess(kExitFailed);
}

extern "C" void OnFault(int signal, siginfo_t* info, void*) {
  if (signal == SIGBUS && info->si_code == BUS_ADRERR && watched_process.load() == getpid()) {
    EndIfFileWasCut(info->si_addr);
  }
  const std::optional<api::PluginCall> call = api::CurrentPluginCall(info->si_addr);
  const bool is_sent = info->si_code <= 0 && info->si_pid != getpid();
  if (!call || is_sent || watched_process.load() != getpid()) {
    // The fault is not a plugin's, so the default action follows.
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  BlockOtherThreads();
  const char* name = "a signal";
  for (const FaultName& fault : kFaults) {
    if (fault.signal == signal) name = fault.text;
  }
  SignalText text;
  text.Add("error: a plugin was ended by ").Add(name).Add(" in ").AddCall(*call);
  if (signal == SIGSEGV || signal == SIGBUS) AddWhere(*call, &text);
  text.Write();
  EndProcess(kExitPlugin);
}

// Ends the process with a message and exit code 3 if a plugin calls exit() with `status`, or
// quick_exit(), before main returns. Returns for any other exit.
void OnExit(const char* function, int status) {
  if (watched_process.load() != getpid()) return;
  if (const int code = ended_with.load(); code != kAtWork) {
    if (status != code) EndProcess(code);
    return;
  }
  const std::optional<api::PluginCall> call = api::CurrentPluginCall();
  // MPI may end an aborted job from any of its functions, but never with code 0.
  if (!call && status != 0) return;
  BlockOtherThreads();
  SignalText text;
  if (call) {
    text.Add("error: a plugin ended the process by ").Add(function).Add(" in ").AddCall(*call);
  } else {
    text.Add("error: a plugin or a library ended the process by ")
        .Add(function)
        .Add(" while plumb was at work, outside of any call of a plugin");
  }
  text.Write();
  EndProcess(kExitPlugin);
}

}  // namespace

void InstallFaultHandlers() {
  watched_process = getpid();
  for (const FaultName& fault : kFaults) {
    struct sigaction action = {}, before = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigfillset(&action.sa_mask);
    sigaction(fault.signal, &action, &before);
    const bool is_taken = (before.sa_flags & SA_SIGINFO) != 0 ||
                          (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
    if (is_taken) sigaction(fault.signal, &before, nullptr);
  }
  // Exit handlers of plugins are registered later, and therefore run before these.
  on_exit([](int status, void*) { OnExit("exit()", status); }, nullptr);
  std::at_quick_exit([] { OnExit("quick_exit()", 0); });
}

int RecordExitCode(int exit_code) {
  ended_with = exit_code;
  return exit_code;
}

}  // namespace plumb::cli
