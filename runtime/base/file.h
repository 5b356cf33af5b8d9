// SPDX-License-Identifier: Apache-2.0
// Files that are replaced atomically, files mapped for reading, and files read at random offsets.
#ifndef PLUMB_RUNTIME_BASE_FILE_H_
#define PLUMB_RUNTIME_BASE_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace plumb {

// Limits for ReadFile: files that people write by hand (specs, recipes), files of bounded size
// that plumb writes (states, tokenizers), and results. MaxDataBytes() is the limit for data: half
// of the memory that this process may use (memory.h).
inline constexpr int64_t kMaxTextBytes = int64_t{16} << 20;
inline constexpr int64_t kMaxStateBytes = int64_t{256} << 20;
inline constexpr int64_t kMaxResultBytes = int64_t{1} << 40;
int64_t MaxDataBytes();

// Reads a whole file. Waits up to two seconds for a pipe to get a writer.
// Errors: kInvalidArgument if the file is longer than `max_bytes`, found without reading the rest
// since it may have no end (at most 1 MiB of a device is read), or if it is a directory or a pipe
// without a writer; kResourceExhausted if memory runs out; else the error of the system call.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes = kMaxStateBytes);
// Reads a file as ReadFile does, with the limit MaxDataBytes() / `times`: for callers that need
// `times` times the file's size in memory. The error message names the limit of this process.
absl::StatusOr<std::string> ReadData(const std::string& path, int64_t times = 1);

// Consumes the next piece of a file's content. The piece is valid only during the call.
using PieceSink = absl::FunctionRef<absl::Status(absl::string_view piece)>;

// Calls `produce` with a sink and writes all pieces that it passes to the sink, in order, to a
// temporary file next to `path`; syncs it, renames it over `path` and syncs the directory. At any
// moment `path` holds the old content or the new, whole; an error of `produce` keeps the old one.
// Follows symbolic links. An existing file keeps its mode. A file that is not regular (a device, a
// pipe, /dev/stdout) is written in place. Raises no signal (SIGPIPE, SIGXFSZ).
// Errors: kInvalidArgument if `path` is a directory or a pipe without a reader.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::FunctionRef<absl::Status(PieceSink sink)> produce);
// Does the same for pieces that are in memory already.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> parts);
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content);

struct FileContent {
  std::string path, content;
};
// Writes the files like WriteFileAtomically, one after the other, but syncs their directories only
// once, at the end: after a crash of the system before that, any of them may be missing.
absl::Status WriteFilesAtomically(absl::Span<const FileContent> files);

// Writes a file that does not exist, and syncs nothing: after a crash of the system it may be
// shorter. For directories that appear by a rename when they are complete, and are checked when
// they are read.
absl::Status WriteNewFile(const std::string& path, absl::string_view content);

// Removes the temporary files of WriteFileAtomically for the files `names` in `directory`, which
// remain if its process was killed. Requires: no other process writes there.
absl::Status RemoveTemporaries(const std::string& directory,
                               absl::Span<const absl::string_view> names);

// Creates a directory and its missing parents (mkdir -p).
absl::Status MakeDirectories(const std::string& path);
// Syncs a directory (fsync), which makes the renames inside it durable.
absl::Status SyncDirectory(const std::string& path);
// Returns the names in the directory `path`, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Removes a file or directory tree (rm -rf); OK if there is none. Removes links, not their targets.
absl::Status RemoveTree(const std::string& path);

// Returns true if both paths name one regular file, or would name one if it were created. Devices
// and pipes are never the same file, because they accept any number of outputs.
bool IsSameFile(const std::string& a, const std::string& b);
// Returns false only if it is certain. If the system gives no answer (no permission, a disk error),
// it returns true, so that opening the path reports the error: a "no" would let the caller start
// over.
bool IsDirectory(const std::string& path);
bool FileExists(const std::string& path);
std::string JoinPath(absl::string_view directory, absl::string_view name);
std::string ParentDirectory(absl::string_view path);  // "a/b" -> "a", "b" -> "."

// Returns the number of bytes that this user may still write at `path`, or in the nearest parent
// that exists; -1 if the system does not say.
int64_t FreeSpace(const std::string& path);

// A regular file from which ranges of bytes are copied. If the file is truncated or removed while
// it is in use, the read that misses the bytes fails. Move-only. Thread-safe for reads.
class RandomAccessFile {
 public:
  enum class Descriptor {
    kKept,     // the descriptor is open as long as the object lives
    kForRead,  // opened for each read, for more files than a process may have open
  };
  // Opens a file. Errors: kInvalidArgument if it is not a regular file.
  static absl::StatusOr<RandomAccessFile> Open(const std::string& path,
                                               Descriptor descriptor = Descriptor::kKept);
  // Reads from the caller's memory instead of a file; `path` is for messages. `content` must
  // outlive the object.
  static RandomAccessFile Borrow(absl::string_view content, const std::string& path);
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  RandomAccessFile(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // size in bytes when the file was opened
  // Copies the bytes [offset, offset + n) to `to`. Allocates nothing unless it fails.
  // Errors: kUnavailable, with the path, if the file is now shorter or was replaced, or if the disk
  // fails.
  // Requires: 0 <= offset, 0 <= n, offset + n <= size().
  absl::Status Read(int64_t offset, int64_t n, char* to) const;

 private:
  RandomAccessFile(std::string path, int64_t size) : path_(std::move(path)), size_(size) {}
  absl::Status ReadFrom(int fd, int64_t offset, int64_t n, char* to) const;

  std::string path_;
  int64_t size_ = 0;
  int fd_ = -1;                     // open only with kKept
  const char* borrowed_ = nullptr;  // the caller's memory; null for a file
  uint64_t device_ = 0, inode_ = 0;
};

// A memory-mapped file, which must not be truncated while it is mapped. Move-only; thread-safe for
// reads.
class MappedFile {
 public:
  enum class Access {
    kRead,
    kCopyOnWrite,  // writes stay in this process
  };
  static absl::StatusOr<MappedFile> Open(const std::string& path, Access access = Access::kRead);
  // Views the caller's memory instead of a file; `content` must outlive the object.
  static MappedFile Borrow(absl::string_view content);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();

  absl::string_view content() const { return {data_, size_}; }  // valid as long as the object lives

 private:
  MappedFile(const char* data, size_t size, bool is_mapped)
      : data_(data), size_(size), is_mapped_(is_mapped) {}
  const char* data_ = nullptr;
  size_t size_ = 0;
  bool is_mapped_ = false;
};

// An exclusive lock on a directory, held until the object is destroyed or the process ends in any
// way. It locks the directory itself, since a lock file could be deleted. Move-only.
class DirectoryLock {
 public:
  // Locks a directory. Errors: kAlreadyExists if another process holds the lock.
  static absl::StatusOr<DirectoryLock> Acquire(const std::string& path);
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;
  DirectoryLock(const DirectoryLock&) = delete;
  ~DirectoryLock();

  // Returns true if `path` is still the directory that was locked, neither removed nor replaced.
  bool Holds(const std::string& path) const;

 private:
  DirectoryLock(int directory, int file) : directory_(directory), file_(file) {}
  int directory_ = -1;
  int file_ = -1;  // descriptor of a lock file, if the file system cannot lock directories
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_FILE_H_
