// SPDX-License-Identifier: Apache-2.0
// FileSystem: the system calls on files. Nearly all of plumb's pass through it, so that a test can
// substitute a file system that fails, writes less than it was given, or dies.
#ifndef PLUMB_RUNTIME_BASE_FILE_SYSTEM_H_
#define PLUMB_RUNTIME_BASE_FILE_SYSTEM_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace plumb {

// Each function makes the system call of its name: on failure it returns -1 (Map: MAP_FAILED) and
// sets errno. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int Open(const char* path, int flags, mode_t mode);
  virtual int Close(int fd);
  virtual ssize_t Read(int fd, void* buffer, size_t n);
  virtual ssize_t ReadAt(int fd, void* buffer, size_t n, off_t offset);
  // Write raises no signal: EPIPE and EFBIG are errors even where SIGPIPE and SIGXFSZ would end the
  // host.
  virtual ssize_t Write(int fd, const void* data, size_t n);
  virtual int Poll(int fd, short events, int timeout_ms);  // polls one descriptor; -1: no timeout
  virtual int Sync(int fd);
  virtual int Truncate(int fd, off_t size);
  virtual int ChangeOwner(int fd, uid_t owner, gid_t group);
  virtual int ChangeMode(int fd, mode_t mode);
  virtual int Lock(int fd);                                // exclusive; does not wait
  virtual void* Map(int fd, size_t size, int protection);  // a private mapping

  virtual int Stat(const char* path, struct stat* info);
  virtual int LinkStat(const char* path, struct stat* info);  // does not follow a link
  virtual int FileStat(int fd, struct stat* info);

  virtual int Rename(const char* from, const char* to);
  virtual int Exchange(const char* a, const char* b);  // swaps two names atomically
  virtual int Unlink(const char* path);
  virtual int MakeDirectory(const char* path);
  virtual int RemoveDirectory(const char* path);
  // Sets `*bytes` to the number that this user may still write into the file system of `path`.
  virtual int FreeSpace(const char* path, int64_t* bytes);
  // Lists the names in a directory except "." and "..", in any order.
  virtual int List(const char* path, std::vector<std::string>* names);
};

// Returns the file system in use: the system's own, unless a test has set another.
FileSystem& Files();

// Sets the file system of the process for a test, until this object is destroyed. No other thread
// may use files during the constructor and the destructor.
class ScopedFileSystem {
 public:
  explicit ScopedFileSystem(FileSystem* files);
  ~ScopedFileSystem();
  ScopedFileSystem(const ScopedFileSystem&) = delete;
  ScopedFileSystem& operator=(const ScopedFileSystem&) = delete;

 private:
  FileSystem* const before_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_FILE_SYSTEM_H_
