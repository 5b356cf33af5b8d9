// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace plumb {
namespace {

// Blocks SIGPIPE and SIGXFSZ while it lives, and drops those that the thread's own writes raised;
// the kernel sends them only to the writing thread. Signal handlers belong to the process and are
// not changed.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() {
    sigset_t pending;
    sigemptyset(&signals_);
    sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      // A signal that is pending already was blocked by the host, which must still receive it.
      if (sigismember(&pending, signal) == 0) sigaddset(&signals_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WriteSignalsBlocked() {
    const int error = errno;
    if (failed_) {
      constexpr timespec kNow = {};
      while (sigtimedwait(&signals_, nullptr, &kNow) > 0 || errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;

  void set_failed() { failed_ = true; }

 private:
  bool failed_ = false;
  sigset_t signals_, before_;
};

FileSystem* SystemFiles() {
  static FileSystem* const files = new FileSystem;
  return files;
}

std::atomic<FileSystem*>& Current() {
  static std::atomic<FileSystem*> current{SystemFiles()};
  return current;
}

}  // namespace

int FileSystem::Open(const char* path, int flags, mode_t mode) { return open(path, flags, mode); }
int FileSystem::Close(int fd) { return close(fd); }
ssize_t FileSystem::Read(int fd, void* buffer, size_t n) { return read(fd, buffer, n); }
ssize_t FileSystem::ReadAt(int fd, void* buffer, size_t n, off_t offset) {
  return pread(fd, buffer, n, offset);
}
ssize_t FileSystem::Write(int fd, const void* data, size_t n) {
  WriteSignalsBlocked blocked;
  const ssize_t written = write(fd, data, n);
  if (written < static_cast<ssize_t>(n)) blocked.set_failed();  // a partial write may signal too
  return written;
}
int FileSystem::Poll(int fd, short events, int timeout_ms) {
  pollfd one = {fd, events, 0};
  return poll(&one, 1, timeout_ms);
}
int FileSystem::Sync(int fd) { return fsync(fd); }
int FileSystem::Truncate(int fd, off_t size) { return ftruncate(fd, size); }
int FileSystem::ChangeOwner(int fd, uid_t owner, gid_t group) { return fchown(fd, owner, group); }
int FileSystem::ChangeMode(int fd, mode_t mode) { return fchmod(fd, mode); }
int FileSystem::Lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB); }
void* FileSystem::Map(int fd, size_t size, int protection) {
  return mmap(nullptr, size, protection, MAP_PRIVATE, fd, 0);
}
int FileSystem::Stat(const char* path, struct stat* info) { return stat(path, info); }
int FileSystem::LinkStat(const char* path, struct stat* info) { return lstat(path, info); }
int FileSystem::FileStat(int fd, struct stat* info) { return fstat(fd, info); }
int FileSystem::Rename(const char* from, const char* to) { return rename(from, to); }
int FileSystem::Exchange(const char* a, const char* b) {
  return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}
int FileSystem::Unlink(const char* path) { return unlink(path); }
int FileSystem::MakeDirectory(const char* path) { return mkdir(path, 0777); }
int FileSystem::RemoveDirectory(const char* path) { return rmdir(path); }

int FileSystem::FreeSpace(const char* path, int64_t* bytes) {
  struct statvfs info;
  if (statvfs(path, &info) != 0) return -1;
  *bytes = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  return 0;
}

int FileSystem::List(const char* path, std::vector<std::string>* names) {
  DIR* const directory = opendir(path);
  if (directory == nullptr) return -1;
  names->clear();
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(directory);
    if (entry == nullptr) break;
    const char* const name = entry->d_name;
    if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) names->push_back(name);
  }
  const int error = errno;
  closedir(directory);
  errno = error;
  return error == 0 ? 0 : -1;
}

FileSystem& Files() { return *Current().load(std::memory_order_acquire); }

ScopedFileSystem::ScopedFileSystem(FileSystem* files) : before_(Current().exchange(files)) {}
ScopedFileSystem::~ScopedFileSystem() { Current().store(before_); }

}  // namespace plumb
