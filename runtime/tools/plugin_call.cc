#include "runtime/tools/plugin_call.h"

#include <algorithm>

#include "plumb.h"
#include "runtime/tools/handles.h"

namespace plumb {
namespace {

PluginCallInfo ToInfo(const plumb_plugin_call& call) {
  return {call.function, call.norm, call.file, call.thread, call.number};
}

}  // namespace

PluginCallInfo PluginCallInProgress() {
  auto call = Sized<plumb_plugin_call>();
  return plumb_plugin_call_here(nullptr, &call) == 0 ? PluginCallInfo() : ToInfo(call);
}

int PluginCallsInProgress(PluginCallInfo* calls, int most) {
  constexpr int kMost = 64;
  plumb_plugin_call seen[kMost] = {};
  seen[0].struct_size = sizeof(seen[0]);
  const int n = plumb_plugin_calls(seen, std::min(most, kMost));
  for (int i = 0; i < n; ++i) calls[i] = ToInfo(seen[i]);
  return n;
}

GuardedAddress FindGuardedAddress(const void* address) {
  auto call = Sized<plumb_plugin_call>();
  if (plumb_plugin_call_here(address, &call) == 0) return {};
  return {call.operand, call.bytes, call.read_only != 0};
}

}  // namespace plumb
