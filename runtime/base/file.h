// SPDX-License-Identifier: Apache-2.0
// Files that are never seen half-written, files mapped for reading, and files read piece by piece.
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

// Limits of ReadFile: for what people write by hand (descriptions, recipes), for what plumb writes
// of a bounded size (states, tokenizers), and for data: half of the memory that
// this process may use (memory.h).
inline constexpr int64_t kMaxTextBytes = int64_t{16} << 20;
inline constexpr int64_t kMaxStateBytes = int64_t{256} << 20;
inline constexpr int64_t kMaxResultBytes = int64_t{1} << 40;
int64_t MaxDataBytes();

// A file longer than `max_bytes` is an error (kInvalidArgument), found before more of it is read:
// it may have no end, as devices, of which a MiB is read at most. So is a pipe to which nobody
// writes within two seconds. kResourceExhausted: no memory for it.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes = kMaxStateBytes);
// With a limit of MaxDataBytes() / `times`, where memory is taken several times the file's size;
// the message names what limits this process.
absl::StatusOr<std::string> ReadData(const std::string& path, int64_t times = 1);

// Takes the next piece of a content, which it may look at until it returns.
using PieceSink = absl::FunctionRef<absl::Status(absl::string_view piece)>;

// Writes the pieces that `produce` gives to the sink it is called with, one after another, to a
// temporary beside `path`, syncs it, renames it over `path` and syncs the directory: at any moment
// `path` holds the old content or the new, whole. An error of `produce` leaves the old one.
// Symbolic links are followed, and a file that exists keeps its mode. What is no regular file (a
// device, a pipe, /dev/stdout) is written through. kInvalidArgument: a directory, or a pipe that
// nobody reads from. No signal is raised (SIGPIPE, SIGXFSZ).
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::FunctionRef<absl::Status(PieceSink sink)> produce);
// The same for pieces that are there.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> parts);
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content);

// Removes what WriteFileAtomically left beside the files `names` of `directory` when its process
// was killed. REQUIRES: no other process writes there.
absl::Status RemoveTemporaries(const std::string& directory,
                               absl::Span<const absl::string_view> names);

// mkdir -p.
absl::Status MakeDirectories(const std::string& path);
// fsync of a directory: makes the renames inside it durable.
absl::Status SyncDirectory(const std::string& path);
// Names in `path`, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// rm -rf; what is not there is gone already. Links are removed, not followed.
absl::Status RemoveTree(const std::string& path);

// Whether both paths name one regular file, or would if it were made. Devices and pipes take any
// number of outputs.
bool IsSameFile(const std::string& a, const std::string& b);
// False where it is certain. Where the system does not say, for want of permission or for an error
// of the disk, what opens the path says so: "no" would be taken for leave to begin anew.
bool IsDirectory(const std::string& path);
bool FileExists(const std::string& path);
std::string JoinPath(absl::string_view directory, absl::string_view name);
std::string DirectoryOf(absl::string_view path);  // "a/b" -> "a", "b" -> "."

// Bytes that this user may still write where `path` is, or would be made; -1 where the system does
// not say.
int64_t FreeSpace(const std::string& path);

// A regular file from which pieces are copied at any offset. A file that is cut or removed while it
// is in use is an error of the read that misses the bytes. Move-only. Thread-safe for reads.
class RandomAccessFile {
 public:
  enum class Descriptor {
    kKept,     // open as long as the object
    kForRead,  // opened for each read: for more files than a process may have open
  };
  // Errors: kInvalidArgument unless it is a regular file.
  static absl::StatusOr<RandomAccessFile> Open(const std::string& path,
                                               Descriptor descriptor = Descriptor::kKept);
  // Memory of the caller's that holds a file's content, and outlives this.
  static RandomAccessFile Borrow(absl::string_view content, const std::string& path);
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  RandomAccessFile(const RandomAccessFile&) = delete;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  // Copies the bytes [offset, offset + n) to `to`. Allocates nothing unless it fails.
  // Errors: kUnavailable, with the path, if the file has fewer bytes now or was replaced, and for
  // an error of the disk.
  // Requires: 0 <= offset, 0 <= n, offset + n <= size().
  absl::Status Read(int64_t offset, int64_t n, char* to) const;

 private:
  RandomAccessFile(std::string path, int64_t size) : path_(std::move(path)), size_(size) {}
  absl::Status ReadFrom(int fd, int64_t offset, int64_t n, char* to) const;

  std::string path_;
  int64_t size_ = 0;
  int fd_ = -1;                     // kKept
  const char* borrowed_ = nullptr;  // memory of the caller's
  uint64_t device_ = 0, inode_ = 0;
};

// A mapped file, which must not be cut meanwhile. Move-only; the view lives as long as the object.
// Thread-safe for reads.
class MappedFile {
 public:
  enum class Access {
    kRead,
    kCopyOnWrite,  // what is written stays in this process
  };
  static absl::StatusOr<MappedFile> Open(const std::string& path, Access access = Access::kRead);
  // Memory of the caller's that holds a file's content, and outlives this.
  static MappedFile Borrow(absl::string_view content);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();

  absl::string_view content() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size, bool is_mapped)
      : data_(data), size_(size), is_mapped_(is_mapped) {}
  const char* data_ = nullptr;
  size_t size_ = 0;
  bool is_mapped_ = false;
};

// An exclusive lock on a directory, held until the object goes or the process ends, however it
// ends. Of the directory itself: a lock file can be deleted. Move-only.
class DirectoryLock {
 public:
  // kAlreadyExists when another process holds the lock.
  static absl::StatusOr<DirectoryLock> Acquire(const std::string& path);
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;
  DirectoryLock(const DirectoryLock&) = delete;
  ~DirectoryLock();

  // Whether `path` still is the directory that was locked, not removed or replaced.
  bool Holds(const std::string& path) const;

 private:
  DirectoryLock(int directory, int file) : directory_(directory), file_(file) {}
  int directory_ = -1;
  int file_ = -1;  // of a lock file, where the file system locks no directories
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_FILE_H_
