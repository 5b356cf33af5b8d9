// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/plugin_call.h"

#include <pthread.h>

namespace plumb {
namespace {

// Max number of records that other threads can see. Further threads are seen by their own handlers
// only.
constexpr int kSlots = 512;
PluginCallSlot call_slots[kSlots];
thread_local PluginCallSlot overflow_slot;

// Releases the record at the end of a thread. A pthread key calls it, because unlike a destructor
// of a thread-local object it does not allocate.
void ReleaseSlot(void* slot) {
  plugin_call_slot = nullptr;
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

}  // namespace plumb
