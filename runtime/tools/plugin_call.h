// Which norm plugin the process is in, for a host that wants to say so when it ends unexpectedly: a
// handler of SIGSEGV, an atexit() function, a watchdog. plumb itself installs none of them; the
// program `plumb` does (cli/plugin_faults.h). All functions are thread-safe and async-signal-safe.
#ifndef PLUMB_RUNTIME_TOOLS_PLUGIN_CALL_H_
#define PLUMB_RUNTIME_TOOLS_PLUGIN_CALL_H_

#include <cstdint>

namespace plumb {

// A call of a plugin's function. The texts are not null, end with NUL, and live as long as the
// call.
struct PluginCallInfo {
  const char* function = "";  // "forward"; "dlopen": the library's constructors; "": in no call
  const char* norm = "";      // the norm's id, or the ids of a file that is being loaded
  const char* file = "";      // "" for a norm that is linked into the program
  // Which thread, from 0, and the number of the call among those of the thread: the same two
  // numbers, the same call.
  int thread = 0;
  uint64_t number = 0;

  bool any() const { return *function != '\0'; }
};

// The call that the calling thread is in; any() is false if it is in none.
PluginCallInfo PluginCallInProgress();

// Those of all threads, up to `most`; returns how many.
int PluginCallsInProgress(PluginCallInfo* calls, int most);

// Where an address lies that a guarded plugin's call (HostRuntimeOptions::guard_plugins) had no
// right to: "saved", and `bytes` in front of its first byte (negative) or behind its last one (from
// 0).
// "" if the calling thread is in no such call, or the address is not near its operands.
struct GuardedAddress {
  const char* operand = "";
  int64_t bytes = 0;
  bool read_only = false;  // it lies within an operand that the call may not write
};
GuardedAddress FindGuardedAddress(const void* address);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_PLUGIN_CALL_H_
