#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

plumb_status plumb_runtime_describe(plumb_runtime* runtime, char* buffer, size_t capacity,
                                    size_t* needed, plumb_error** error) {
  // Not as Call: the floating-point mode that it tells is the caller's.
  return plumb::capi::Guard(error, [&]() -> absl::Status {
    if (runtime == nullptr) return plumb::capi::NullArgument("runtime");
    plumb::capi::GiveText(runtime->state->runtime->DescribeJson(), buffer, capacity, needed);
    return absl::OkStatus();
  });
}
