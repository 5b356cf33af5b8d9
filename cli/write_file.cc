#include "cli/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace plumb::cli {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": cannot write: ", std::strerror(error));
  // A place that does not exist is the caller's mistake; a full disk is not.
  const bool bad_path = error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES;
  return bad_path ? absl::InvalidArgumentError(message) : absl::UnavailableError(message);
}

bool WriteAll(int fd, absl::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0;
}

}  // namespace

absl::Status WriteFileWhole(const std::string& path, absl::string_view content) {
  const std::string temporary = absl::StrCat(path, ".tmp-", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return CannotWrite(path, errno);
  int error = WriteAll(fd, content) ? 0 : errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(temporary.c_str());
  return CannotWrite(path, error);
}

}  // namespace plumb::cli
