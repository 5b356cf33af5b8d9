// SPDX-License-Identifier: Apache-2.0
// The record of which plugin function each thread is in, for whoever has to say so when the process
// is about to end: a signal handler, an exit handler. They see nothing but globals, so the records
// are the one state of the module with process lifetime. Thread-safe; what reads the records is
// async-signal-safe. Entering a call is two stores to memory of the thread's own.
#ifndef PLUMB_RUNTIME_PLUGIN_PLUGIN_CALL_H_
#define PLUMB_RUNTIME_PLUGIN_PLUGIN_CALL_H_

#include <atomic>
#include <cstdint>

namespace plumb {

class OperandGuard;

// One function of one norm. The texts are the owner's, and not null.
struct PluginCall {
  const char* function = "";  // "forward"
  const char* norm = "";      // its id
  const char* file = "";      // "" for a norm that is linked into the host
};

// A thread's place among the records.
struct alignas(64) PluginCallSlot {
  std::atomic<const PluginCall*> call{nullptr};     // the innermost one; null outside of any
  std::atomic<uint64_t> entered{0};                 // calls so far: tells one from the next
  std::atomic<const OperandGuard*> guard{nullptr};  // of the call, if its operands are guarded
  std::atomic<bool> taken{false};
};

// This thread's; null until its first call.
inline thread_local PluginCallSlot* plugin_call_slot = nullptr;
PluginCallSlot* ClaimPluginCallSlot();

// While one lives, the thread is in `call`, which outlives it.
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

// The call that this thread is in; null if none.
const PluginCall* CurrentPluginCall();

// The calls that all threads are in, up to `most` of them. `entered` tells a call that is seen
// again from a later one of the same thread. A call that ends meanwhile may be among them.
struct SeenPluginCall {
  PluginCall call;
  int thread = 0;
  uint64_t entered = 0;
};
int PluginCallsInProgress(SeenPluginCall* seen, int most);

// From now on every thread that calls a plugin and has no alternate signal stack gets one, at its
// first call.
void UseSignalStacksInPluginCalls();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_PLUGIN_CALL_H_
