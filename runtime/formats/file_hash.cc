// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/file_hash.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/hash.h"

namespace plumb {
namespace {

constexpr int64_t kMinCachedBytes = int64_t{32} << 20;
// A file may change again within the resolution of its time without another time.
constexpr std::time_t kSettledSeconds = 2;

// Returns the text by which a later call recognizes the unchanged file; "" if it may not be kept.
std::string StampOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || info.st_size < kMinCachedBytes) return "";
  if (std::time(nullptr) - info.st_mtime < kSettledSeconds) return "";
  return absl::StrCat(info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ",
                      info.st_dev, ":", info.st_ino, " ");
}

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

absl::StatusOr<std::string> ReadAndHash(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(path));
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::string piece;
  ContentHasher hasher;
  for (int64_t begin = 0; begin < file.size(); begin += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, file.size() - begin)));
    PLUMB_RETURN_IF_ERROR(file.Read(begin, static_cast<int64_t>(piece.size()), &piece[0]));
    hasher.Update(piece);
  }
  return HexDigits(hasher.Finish());
}

}  // namespace

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  const std::string stamp = StampOf(path);
  const std::string cache = stamp.empty() ? "" : CacheFile(path);
  constexpr size_t kDigits = 16;
  if (!cache.empty()) {
    const absl::StatusOr<std::string> known = ReadFile(cache, kMaxTextBytes);
    if (known.ok() && absl::StartsWith(*known, stamp) && known->size() == stamp.size() + kDigits) {
      return known->substr(stamp.size());
    }
  }
  PLUMB_ASSIGN_OR_RETURN(std::string hash, ReadAndHash(path));
  if (!cache.empty() && stamp == StampOf(path) && MakeDirectories(DirectoryOf(cache)).ok()) {
    WriteFileAtomically(cache, stamp + hash).IgnoreError();
  }
  return hash;
}

}  // namespace plumb
