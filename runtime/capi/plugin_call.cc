// SPDX-License-Identifier: Apache-2.0
// The norm call that a thread is in. All functions here are async-signal-safe.
#include <algorithm>
#include <cstddef>

#include "runtime/capi/error.h"
#include "runtime/plugin/plugin_call.h"

namespace plumb::capi {
namespace {

plumb_plugin_call ToCall(const SeenPluginCall& seen) {
  plumb_plugin_call call = {};
  call.function = seen.call.function;
  call.norm = seen.call.norm;
  call.file = seen.call.file;
  call.number = seen.entered;
  call.thread = seen.thread;
  return call;
}

}  // namespace
}  // namespace plumb::capi

int32_t plumb_current_plugin_call(plumb_plugin_call* call) {
  const plumb::PluginCall* const current = plumb::CurrentPluginCall();
  if (current == nullptr) return 0;
  if (call == nullptr) return 1;
  if (call->struct_size < sizeof(call->struct_size)) return -1;
  plumb::capi::CopyStruct(plumb::capi::ToCall({*current, 0, 0}), call);
  return 1;
}

int32_t plumb_plugin_calls(plumb_plugin_call* calls, int32_t capacity) {
  constexpr int32_t kMax = 64;
  if (calls == nullptr || capacity <= 0) return 0;
  plumb::SeenPluginCall seen[kMax];
  const int32_t n = plumb::PluginCallsInProgress(seen, std::min(capacity, kMax));
  const auto get = [&seen](size_t i) { return plumb::capi::ToCall(seen[i]); };
  return static_cast<int32_t>(plumb::capi::WriteList(static_cast<size_t>(n), get, calls, capacity));
}
