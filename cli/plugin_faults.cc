#include "cli/plugin_faults.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>

#include "cli/mapped_file.h"
#include "cli/output.h"
#include "cli/signal_text.h"
#include "runtime/tools/plugin_call.h"

namespace plumb::cli {
namespace {

// Handlers see nothing but globals. The process that is watched: a child that was forked ends as it
// likes. 0: none yet.
std::atomic<pid_t> watched_process{0};
std::atomic<bool> only_in_calls{false};
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

// One thread tells; others that come here meanwhile wait for the end.
void BeOnlyOneEnding() {
  while (is_ending.test_and_set()) pause();
}

void AddWhere(const void* address, SignalText* text) {
  const GuardedAddress at = FindGuardedAddress(address);
  if (*at.operand == '\0') return;
  text->Add("\nat ");
  if (at.read_only) {
    text->Add("byte ").Add(at.bytes).Add(" of ").Add(at.operand).Add(", which it may only read");
  } else if (at.bytes < 0) {
    text->Add(-at.bytes).Add(" bytes before ").Add(at.operand);
  } else {
    text->Add("byte ").Add(at.bytes).Add(" behind ").Add(at.operand);
  }
}

// A file whose mapping has no byte at `address` although it had when it was mapped: ends the
// process with a message that names it. Returns if `address` is in no mapped file.
void EndIfFileWasCut(const void* address) {
  char path[PATH_MAX];
  if (!FindMappedFile(address, path, sizeof(path))) return;
  BeOnlyOneEnding();
  SignalText text;
  text.Add("error: ").Add(path).Add(
      ": was cut while it was in use: bytes that it had when it was opened are gone");
  text.Write();
  EndProcess(kExitFailed);
}

extern "C" void OnFault(int signal, siginfo_t* info, void*) {
  if (signal == SIGBUS && info->si_code == BUS_ADRERR && watched_process.load() == getpid()) {
    EndIfFileWasCut(info->si_addr);
  }
  const PluginCallInfo call = PluginCallInProgress();
  const bool is_sent = info->si_code <= 0 && info->si_pid != getpid();
  if (!call.any() || is_sent || watched_process.load() != getpid()) {
    // Not a plugin's: as if nobody had listened.
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  BeOnlyOneEnding();
  const char* name = "a signal";
  for (const FaultName& fault : kFaults) {
    if (fault.signal == signal) name = fault.text;
  }
  SignalText text;
  text.Add("error: a plugin was ended by ").Add(name).Add(" in ").AddCall(call);
  if (signal == SIGSEGV || signal == SIGBUS) AddWhere(info->si_addr, &text);
  text.Write();
  EndProcess(kExitPlugin);
}

// Somebody ends the process by `function`.
void OnExit(const char* function) {
  if (watched_process.load() != getpid()) return;
  if (const int code = ended_with.load(); code != kAtWork) EndProcess(code);
  const PluginCallInfo call = PluginCallInProgress();
  if (!call.any() && only_in_calls) return;
  BeOnlyOneEnding();
  SignalText text;
  if (call.any()) {
    text.Add("error: a plugin ended the process by ").Add(function).Add(" in ").AddCall(call);
  } else {
    text.Add("error: a plugin or a library ended the process by ")
        .Add(function)
        .Add(" while plumb was at work, outside of any call of a plugin");
  }
  text.Write();
  EndProcess(kExitPlugin);
}

}  // namespace

void WatchPlugins() {
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
  // For an exit() that the C library calls itself. Registered first, so they run last: a plugin's
  // own exit handlers may still end the process.
  on_exit(
      [](int status, void*) {
        if (status != ended_with.load()) OnExit("exit()");
      },
      nullptr);
  std::at_quick_exit([] { OnExit("quick_exit()"); });
}

int WorkEnded(int exit_code) {
  ended_with = exit_code;
  return exit_code;
}

void LeaveExitsOutsidePluginsAlone() { only_in_calls = true; }

}  // namespace plumb::cli

// In place of the C library's, for all that is linked or loaded.
//
// exit() too: two threads that call it at once would run handlers and destructors side by side,
// under other threads at work, and die of a fault before any handler tells. A process that is not
// at work, a forked child say, gets the C library's.
extern "C" void exit(int code) noexcept {
  plumb::cli::OnExit("exit()");
  using Exit = void (*)(int);
  reinterpret_cast<Exit>(dlsym(RTLD_NEXT, "exit"))(code);
  plumb::cli::EndProcess(code);
}
extern "C" void _exit(int code) {
  plumb::cli::OnExit("_exit()");
  plumb::cli::EndProcess(code);
}
extern "C" void _Exit(int code) noexcept {
  plumb::cli::OnExit("_Exit()");
  plumb::cli::EndProcess(code);
}
