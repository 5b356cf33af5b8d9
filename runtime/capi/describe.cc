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
