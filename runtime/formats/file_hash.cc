// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/file_hash.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/formats/hash.h"

namespace plumb {

namespace {

constexpr int64_t kMinCachedBytes = int64_t{32} << 20;
// A file may change again within the resolution of its time without another time.
constexpr int64_t kSettledNs = 2000000000;

// Returns the file of the cache for `path`; "" without a cache directory.
std::string CacheFile(const std::string& path) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string directory = cache != nullptr ? cache : "";
  if (directory.empty() && home != nullptr && *home != '\0') directory = JoinPath(home, ".cache");
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error || directory.empty() || directory.front() != '/') return "";
  return absl::StrCat(directory, "/plumb/hashes/",
                      HexDigits(ContentHash(whole.lexically_normal().string())));
}

}  // namespace

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

absl::StatusOr<std::string> CachedHashOfFile(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const FileStamp stamp, StampOfFile(path));
  const int64_t now = int64_t{std::time(nullptr)} * 1000000000;
  const bool is_cached = stamp.size >= kMinCachedBytes && now - stamp.modified_ns > kSettledNs;
  const std::string cache = is_cached ? CacheFile(path) : "";
  if (cache.empty()) return HashOfFile(path);
  const std::string key = absl::StrCat(stamp.size, " ", stamp.modified_ns, " ", stamp.inode, " ");
  constexpr size_t kDigits = 16;
  const absl::StatusOr<std::string> known = ReadFile(cache, kMaxTextBytes);
  if (known.ok() && absl::StartsWith(*known, key) && known->size() == key.size() + kDigits) {
    return known->substr(key.size());
  }
  PLUMB_ASSIGN_OR_RETURN(std::string hash, HashOfFile(path));
  PLUMB_ASSIGN_OR_RETURN(const FileStamp after, StampOfFile(path));
  if (after == stamp && MakeDirectories(ParentDirectory(cache)).ok()) {
    WriteFileAtomically(cache, key + hash).IgnoreError();
  }
  return hash;
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
