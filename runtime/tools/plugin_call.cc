#include "runtime/tools/plugin_call.h"

#include <algorithm>

#include "runtime/plugin/operand_guard.h"
#include "runtime/plugin/plugin_call.h"

namespace plumb {
namespace {

PluginCallInfo ToPublic(const SeenPluginCall& seen) {
  return {seen.call.function, seen.call.norm, seen.call.file, seen.thread, seen.entered};
}

}  // namespace

PluginCallInfo PluginCallInProgress() {
  const PluginCall* const call = CurrentPluginCall();
  return call == nullptr ? PluginCallInfo() : ToPublic({*call, 0, 0});
}

int PluginCallsInProgress(PluginCallInfo* calls, int most) {
  constexpr int kMost = 64;
  SeenPluginCall seen[kMost];
  const int n = PluginCallsInProgress(seen, std::min(most, kMost));
  for (int i = 0; i < n; ++i) calls[i] = ToPublic(seen[i]);
  return n;
}

GuardedAddress FindGuardedAddress(const void* address) {
  GuardedAddress found;
  const PluginCallSlot* const slot = plugin_call_slot;
  const OperandGuard* const guard = slot == nullptr ? nullptr : slot->guard.load();
  const char* const operand =
      guard == nullptr ? nullptr : guard->Find(address, &found.bytes, &found.read_only);
  if (operand != nullptr) found.operand = operand;
  return found;
}

}  // namespace plumb
