// SPDX-License-Identifier: Apache-2.0
// Records of the plugin function that each thread is in, for signal handlers that report it when
// the process ends. These see only globals, so the records are the one state of the module with
// process lifetime. Thread-safe; readers are async-signal-safe. Entering a call costs
// two stores to thread-owned memory.
#ifndef PLUMB_RUNTIME_PLUGIN_PLUGIN_CALL_H_
#define PLUMB_RUNTIME_PLUGIN_PLUGIN_CALL_H_

#include <atomic>
#include <cstdint>

namespace plumb {

// A function of a norm. The strings belong to the caller and are not null.
struct PluginCall {
  const char* function = "";  // "forward", ...
  const char* norm = "";      // id
  const char* file = "";      // "" for a norm linked into the host
};

// A thread's record.
struct alignas(64) PluginCallSlot {
  std::atomic<const PluginCall*> call{nullptr};  // the innermost call; null outside of any
  std::atomic<uint64_t> entered{0};              // number of calls so far; identifies a call
  std::atomic<bool> taken{false};
};

// This thread's record; null until its first call.
inline thread_local PluginCallSlot* plugin_call_slot = nullptr;
PluginCallSlot* ClaimPluginCallSlot();

// Records that the thread is in `call`, which must outlive the scope.
class PluginCallScope {
 public:
  explicit PluginCallScope(const PluginCall* call)
      : slot_(plugin_call_slot != nullptr ? plugin_call_slot : ClaimPluginCallSlot()),
        outer_(slot_->call.load(std::memory_order_relaxed)) {
    slot_->entered.store(slot_->entered.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
    slot_->call.store(call, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~PluginCallScope() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    slot_->call.store(outer_, std::memory_order_relaxed);
  }
  PluginCallScope(const PluginCallScope&) = delete;
  PluginCallScope& operator=(const PluginCallScope&) = delete;

 private:
  PluginCallSlot* const slot_;
  const PluginCall* const outer_;
};

// Returns the call that this thread is in, or null.
const PluginCall* CurrentPluginCall();

// Returns the number of calls that all threads are in, and up to `max` of them. `entered`
// distinguishes a call from a later one of the same thread. A call that ends meanwhile may be
// included.
struct SeenPluginCall {
  PluginCall call;
  int thread = 0;
  uint64_t entered = 0;
};
int PluginCallsInProgress(SeenPluginCall* seen, int max);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_PLUGIN_CALL_H_
