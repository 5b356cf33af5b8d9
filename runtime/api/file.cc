#include "plumb/file.h"

#include "runtime/base/file.h"

namespace plumb {

absl::Status WriteFile(const std::string& path, absl::string_view content) {
  const absl::Status status = WriteFileAtomically(path, content);
  // Of an output both are mistakes in its name.
  if (absl::IsNotFound(status) || absl::IsPermissionDenied(status)) {
    return absl::InvalidArgumentError(status.message());
  }
  return status;
}

bool IsSameOutput(const std::string& a, const std::string& b) { return IsSameFile(a, b); }

}  // namespace plumb
