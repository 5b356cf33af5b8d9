#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

plumb_status plumb_runtime_describe(plumb_runtime* runtime, char* buffer, size_t capacity,
                                    size_t* needed, plumb_error** error) {
  return plumb::capi::Call(runtime, "runtime", error, [&]() -> absl::Status {
    plumb::capi::GiveText(runtime->state->runtime->DescribeJson(), buffer, capacity, needed);
    return absl::OkStatus();
  });
}
