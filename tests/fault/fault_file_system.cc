// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/fault_file_system.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

thread_local bool is_short = false;  // the last counted call

}  // namespace

std::string Fault::ToString() const {
  switch (kind) {
    case Kind::kNone:
      return "no fault";
    case Kind::kFail:
      return absl::StrCat("call ", at, " fails: ", std::strerror(error));
    case Kind::kShort:
      return absl::StrCat("call ", at, " is short");
    case Kind::kLast:
      return absl::StrCat("call ", at, " is the last");
  }
  return "";
}

FaultFileSystem::~FaultFileSystem() {
  for (const auto& [id, file] : unsynced_) close(file.fd);
}

bool FaultFileSystem::Passes(const char* call, const std::string& on, bool moves_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t index = calls();
  moves_bytes_.push_back(moves_bytes);
  is_short = fault_.kind == Fault::Kind::kShort && index == fault_.at;
  if (fault_.kind != Fault::Kind::kNone && index == fault_.at) {
    faulty_call_ = absl::StrCat(call, " ", on);
  }
  if (fault_.kind == Fault::Kind::kFail && index == fault_.at) {
    errno = fault_.error;
    return false;
  }
  if (fault_.kind == Fault::Kind::kLast && index > fault_.at) {
    errno = EIO;
    return false;
  }
  return true;
}

size_t FaultFileSystem::Shorten(size_t n) const { return is_short && n > 1 ? n / 2 : n; }

void FaultFileSystem::NoteUnsynced(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, is_new] = unsynced_.try_emplace(FileId{info.st_dev, info.st_ino});
  if (is_new) at->second = {dup(fd), info.st_size};
}

void FaultFileSystem::CutPower() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, file] : unsynced_) {
    if (ftruncate(file.fd, file.size) != 0) abort();  // an error of the test
    close(file.fd);
  }
  unsynced_.clear();
}

int FaultFileSystem::Open(const char* path, int flags, mode_t mode) {
  return Passes("Open", path) ? FileSystem::Open(path, flags, mode) : -1;
}
// Closes the file in any case, because a dying process closes its files, too.
int FaultFileSystem::Close(int fd) {
  const bool passes = Passes("Close", absl::StrCat(fd));
  const int error = errno;
  const int closed = FileSystem::Close(fd);
  if (!passes) errno = error;
  return passes ? closed : -1;
}
ssize_t FaultFileSystem::Read(int fd, void* buffer, size_t n) {
  return Passes("Read", absl::StrCat(fd), /*moves_bytes=*/true)
             ? FileSystem::Read(fd, buffer, Shorten(n))
             : -1;
}
ssize_t FaultFileSystem::ReadAt(int fd, void* buffer, size_t n, off_t offset) {
  return Passes("ReadAt", absl::StrCat(fd), /*moves_bytes=*/true)
             ? FileSystem::ReadAt(fd, buffer, Shorten(n), offset)
             : -1;
}
ssize_t FaultFileSystem::Write(int fd, const void* data, size_t n) {
  if (!Passes("Write", absl::StrCat(fd), /*moves_bytes=*/true)) return -1;
  const size_t length = Shorten(n);
  NoteUnsynced(fd);
  return FileSystem::Write(fd, data, length);
}
int FaultFileSystem::Sync(int fd) {
  if (!Passes("Sync", absl::StrCat(fd))) return -1;
  struct stat info;
  if (fstat(fd, &info) != 0) return -1;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = unsynced_.find(FileId{info.st_dev, info.st_ino});
  if (at == unsynced_.end()) return 0;
  close(at->second.fd);
  unsynced_.erase(at);
  return 0;
}
int FaultFileSystem::Truncate(int fd, off_t size) {
  return Passes("Truncate", absl::StrCat(fd)) ? FileSystem::Truncate(fd, size) : -1;
}
int FaultFileSystem::ChangeOwner(int fd, uid_t owner, gid_t group) {
  return Passes("ChangeOwner", absl::StrCat(fd)) ? FileSystem::ChangeOwner(fd, owner, group) : -1;
}
int FaultFileSystem::ChangeMode(int fd, mode_t mode) {
  return Passes("ChangeMode", absl::StrCat(fd)) ? FileSystem::ChangeMode(fd, mode) : -1;
}
int FaultFileSystem::Lock(int fd) {
  return Passes("Lock", absl::StrCat(fd)) ? FileSystem::Lock(fd) : -1;
}
void* FaultFileSystem::Map(int fd, size_t size, int protection) {
  return Passes("Map", absl::StrCat(fd)) ? FileSystem::Map(fd, size, protection) : MAP_FAILED;
}
int FaultFileSystem::Stat(const char* path, struct stat* info) {
  return Passes("Stat", path) ? FileSystem::Stat(path, info) : -1;
}
int FaultFileSystem::LinkStat(const char* path, struct stat* info) {
  return Passes("LinkStat", path) ? FileSystem::LinkStat(path, info) : -1;
}
int FaultFileSystem::FileStat(int fd, struct stat* info) {
  return Passes("FileStat", absl::StrCat(fd)) ? FileSystem::FileStat(fd, info) : -1;
}
int FaultFileSystem::FreeSpace(const char* path, int64_t* bytes) {
  return Passes("FreeSpace", path) ? FileSystem::FreeSpace(path, bytes) : -1;
}
int FaultFileSystem::Rename(const char* from, const char* to) {
  return Passes("Rename", from) ? FileSystem::Rename(from, to) : -1;
}
int FaultFileSystem::Exchange(const char* a, const char* b) {
  return Passes("Exchange", a) ? FileSystem::Exchange(a, b) : -1;
}
int FaultFileSystem::Unlink(const char* path) {
  return Passes("Unlink", path) ? FileSystem::Unlink(path) : -1;
}
int FaultFileSystem::MakeDirectory(const char* path) {
  return Passes("MakeDirectory", path) ? FileSystem::MakeDirectory(path) : -1;
}
int FaultFileSystem::RemoveDirectory(const char* path) {
  return Passes("RemoveDirectory", path) ? FileSystem::RemoveDirectory(path) : -1;
}
int FaultFileSystem::List(const char* path, std::vector<std::string>* names) {
  return Passes("List", path) ? FileSystem::List(path, names) : -1;
}

FaultStride::FaultStride() {
  const char* const text = std::getenv("PLUMB_FAULT_STRIDE");
  if (text == nullptr) return;
  if (!absl::SimpleAtoi(text, &step_) || step_ < 1) {
    std::cerr << "PLUMB_FAULT_STRIDE is not a number from 1: " << text << std::endl;
    std::exit(2);
  }
}

std::string FaultStride::ToString() const {
  return step_ == 1 ? "every call" : absl::StrCat("every ", step_, "th call");
}

}  // namespace plumb
