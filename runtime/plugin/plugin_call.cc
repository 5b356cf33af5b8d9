// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/plugin_call.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace plumb {
namespace {

// Max number of records that other threads can see. Further threads are seen by their own handlers
// only.
constexpr int kSlots = 512;
PluginCallSlot call_slots[kSlots];
thread_local PluginCallSlot overflow_slot;

std::atomic<bool> wants_signal_stacks{false};
thread_local void* own_signal_stack = nullptr;

// A signal frame with the widest registers takes 11 KiB.
size_t SignalStackBytes() {
  return static_cast<size_t>(std::max(64L << 10, 4 * sysconf(_SC_MINSIGSTKSZ)));
}

// Uses mmap, so that programs that count allocations see none.
void InstallSignalStack() {
  stack_t now = {};
  if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  stack_t mine = {};
  mine.ss_size = SignalStackBytes();
  mine.ss_sp = mmap(nullptr, mine.ss_size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (mine.ss_sp == MAP_FAILED) return;
  if (sigaltstack(&mine, nullptr) == 0) {
    own_signal_stack = mine.ss_sp;
  } else {
    munmap(mine.ss_sp, mine.ss_size);
  }
}

void TakeSignalStackBack() {
  stack_t now = {};
  if (own_signal_stack == nullptr || sigaltstack(nullptr, &now) != 0) return;
  if (now.ss_sp == own_signal_stack) {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    if (sigaltstack(&none, nullptr) != 0) return;  // this code is running on it
  }
  munmap(own_signal_stack, SignalStackBytes());
  own_signal_stack = nullptr;
}

// Releases the record at the end of a thread. A pthread key calls it, because exit() runs
// destructors of thread-local objects, and the record is needed after that; the key does not
// allocate either.
void ReleaseSlot(void* slot) {
  plugin_call_slot = nullptr;
  TakeSignalStackBack();
  PluginCallSlot* const mine = static_cast<PluginCallSlot*>(slot);
  mine->call.store(nullptr, std::memory_order_relaxed);
  mine->taken.store(false, std::memory_order_release);
}

// Deletes the key when this code is unloaded or the process ends, so that a thread that ends later
// does not call ReleaseSlot.
struct SlotKey {
  pthread_key_t key;
  SlotKey() { pthread_key_create(&key, ReleaseSlot); }
  ~SlotKey() { pthread_key_delete(key); }
};

}  // namespace

PluginCallSlot* ClaimPluginCallSlot() {
  static const SlotKey key;
  if (wants_signal_stacks.load(std::memory_order_relaxed)) InstallSignalStack();
  for (PluginCallSlot& slot : call_slots) {
    if (slot.taken.exchange(true, std::memory_order_acquire)) continue;
    pthread_setspecific(key.key, &slot);
    return plugin_call_slot = &slot;
  }
  return plugin_call_slot = &overflow_slot;
}

const PluginCall* CurrentPluginCall() {
  const PluginCallSlot* const slot = plugin_call_slot;
  return slot == nullptr ? nullptr : slot->call.load(std::memory_order_relaxed);
}

int PluginCallsInProgress(SeenPluginCall* seen, int max) {
  int n = 0;
  for (int i = 0; i < kSlots && n < max; ++i) {
    const uint64_t entered = call_slots[i].entered.load(std::memory_order_acquire);
    const PluginCall* const call = call_slots[i].call.load(std::memory_order_acquire);
    if (call != nullptr) seen[n++] = {*call, i, entered};
  }
  return n;
}

void UseSignalStacksInPluginCalls() { wants_signal_stacks.store(true); }

}  // namespace plumb
