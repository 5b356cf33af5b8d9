// SPDX-License-Identifier: Apache-2.0
// Identity of files that a run refers to and does not own. A stamp shows in microseconds that a
// file is unchanged; if the stamp differs, because the file was copied or touched, the hash of the
// content decides. Stateless.
#ifndef PLUMB_RUNTIME_FORMATS_FILE_HASH_H_
#define PLUMB_RUNTIME_FORMATS_FILE_HASH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace plumb {

// Facts that change when a file is written or replaced.
struct FileStamp {
  int64_t size = 0, modified_ns = 0, inode = 0;

  bool operator==(const FileStamp& other) const {
    return size == other.size && modified_ns == other.modified_ns && inode == other.inode;
  }
};

// Returns the stamp of the file to which a path leads. Errors: kNotFound, kUnavailable.
absl::StatusOr<FileStamp> StampOfFile(const std::string& path);

// Reads a regular file and returns its ContentHash as HexDigits. Takes 1 MiB of memory.
absl::StatusOr<std::string> HashOfFile(const std::string& path);

// Returns the same. That of a file of 32 MiB or more is kept in the user's cache directory
// (XDG_CACHE_HOME, or else ~/.cache) until the file's stamp changes; a cache that cannot be read or
// written is ignored.
absl::StatusOr<std::string> CachedHashOfFile(const std::string& path);

// Returns true if the file has the content that had this stamp and hash. Reads it only if the
// stamp differs and the size does not.
absl::StatusOr<bool> HasContent(const std::string& path, const FileStamp& stamp,
                                const std::string& hash);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_FILE_HASH_H_
