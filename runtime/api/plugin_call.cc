#include "plumb/plugin_call.h"

#include <algorithm>

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

GuardedAddress FindGuardedAddress(const void*) { return {}; }

}  // namespace plumb
