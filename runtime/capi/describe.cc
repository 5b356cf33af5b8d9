// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/process.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

plumb_status plumb_runtime_describe(plumb_runtime* runtime, char* buffer, size_t capacity,
                                    size_t* needed, plumb_error** error) {
  // Before the call sets its own.
  const plumb::FloatingPoint mode = plumb::CallersFloatingPoint();
  return plumb::capi::Call(runtime, "runtime", error, [&]() -> absl::Status {
    const std::string text = runtime->state->runtime->DescribeJson(mode);
    plumb::capi::GiveText(text, buffer, capacity, needed);
    return absl::OkStatus();
  });
}

plumb_status plumb_plugin_describe(plumb_runtime* runtime, const char* id, char* buffer,
                                   size_t capacity, size_t* needed, plumb_error** error) {
  return plumb::capi::Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (id == nullptr) return plumb::capi::NullArgument("id");
    const absl::StatusOr<std::string> text = runtime->state->runtime->DescribePluginJson(id);
    runtime->state->TellWarnings();
    if (!text.ok()) return text.status();
    plumb::capi::GiveText(*text, buffer, capacity, needed);
    return absl::OkStatus();
  });
}
