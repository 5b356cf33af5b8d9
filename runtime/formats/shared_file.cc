// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/shared_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "runtime/base/file_system.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

absl::Status WriteAllAt(int fd, int64_t offset, absl::string_view piece, const std::string& path) {
  while (!piece.empty()) {
    const ssize_t written = Files().WriteAt(fd, piece.data(), piece.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path, "cannot write");
    piece.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

// Opens the file, calls `write` with its descriptor, and syncs it.
absl::Status WithFile(const std::string& path, int flags,
                      absl::FunctionRef<absl::Status(int fd)> write) {
  const int fd = Files().Open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (fd < 0) return FileError(path, "cannot open");
  const absl::Cleanup close = [fd] { Files().Close(fd); };
  PLUMB_RETURN_IF_ERROR(write(fd));
  return Files().Sync(fd) == 0 ? absl::OkStatus() : FileError(path, "cannot sync");
}

}  // namespace

absl::Status MakeSizedFile(const std::string& path, absl::string_view begin, int64_t bytes) {
  return WithFile(path, O_CREAT | O_TRUNC, [&](int fd) -> absl::Status {
    PLUMB_RETURN_IF_ERROR(WriteAllAt(fd, 0, begin, path));
    return Files().Truncate(fd, bytes) == 0 ? absl::OkStatus()
                                            : FileError(path, "cannot make it so large");
  });
}

absl::Status WriteIntoFile(const std::string& path,
                           absl::FunctionRef<absl::Status(OffsetSink sink)> produce) {
  return WithFile(path, 0, [&](int fd) {
    return produce([&](int64_t offset, absl::string_view piece) {
      return WriteAllAt(fd, offset, piece, path);
    });
  });
}

}  // namespace plumb
