// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/file_hash.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/formats/hash.h"

namespace plumb {

absl::StatusOr<FileStamp> StampOfFile(const std::string& path) {
  struct stat info;
  if (Files().Stat(path.c_str(), &info) != 0) {
    return absl::Status(
        errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable,
        absl::StrCat(path, ": cannot stat: ", ErrnoText(errno)));
  }
  return FileStamp{info.st_size, int64_t{info.st_mtim.tv_sec} * 1000000000 + info.st_mtim.tv_nsec,
                   static_cast<int64_t>(info.st_ino)};
}

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(path));
  std::string piece(size_t{1} << 20, '\0');
  ContentHasher hasher;
  for (int64_t at = 0; at < file.size();) {
    const int64_t n = std::min(file.size() - at, static_cast<int64_t>(piece.size()));
    PLUMB_RETURN_IF_ERROR(file.Read(at, n, piece.data()));
    hasher.Update({piece.data(), static_cast<size_t>(n)});
    at += n;
  }
  return HexDigits(hasher.Finish());
}

absl::StatusOr<bool> HasContent(const std::string& path, const FileStamp& stamp,
                                const std::string& hash) {
  PLUMB_ASSIGN_OR_RETURN(const FileStamp now, StampOfFile(path));
  if (now == stamp) return true;
  if (now.size != stamp.size) return false;
  PLUMB_ASSIGN_OR_RETURN(const std::string found, HashOfFile(path));
  return found == hash;
}

}  // namespace plumb
