#include "runtime/tools/file.h"

#include <utility>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/unfinished_paths.h"

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

absl::StatusOr<std::shared_ptr<void>> LockDirectory(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Acquire(path));
  return std::shared_ptr<void>(std::make_shared<DirectoryLock>(std::move(lock)));
}

std::shared_ptr<void> MarkUnfinished(const std::string& path) {
  return std::make_shared<UnfinishedPath>(path);
}

}  // namespace plumb
