#include "runtime/tools/handles.h"

#include <new>

#include "absl/strings/string_view.h"

namespace plumb {

absl::Status TakeError(plumb_status code, plumb_error* error) {
  if (code == PLUMB_OK) return absl::OkStatus();
  const std::unique_ptr<plumb_error, FreeHandle<plumb_error_free>> owned(error);
  const absl::string_view message = plumb_error_message(error);
  if (code == PLUMB_RESOURCE_EXHAUSTED && message == "out of memory") throw std::bad_alloc();
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace plumb
