// SPDX-License-Identifier: Apache-2.0
// A file system in which one chosen call fails, is cut short, or is the last that has an effect.
// Data that was not synced is lost in a power loss.
#ifndef PLUMB_TESTS_FAULT_FAULT_FILE_SYSTEM_H_
#define PLUMB_TESTS_FAULT_FAULT_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/file_system.h"

namespace plumb {

struct Fault {
  enum class Kind {
    kNone,
    kFail,   // call `at` fails with `error` and has no effect
    kShort,  // call `at`, a read or a write, transfers half of its bytes
    kLast,   // the process dies after call `at`: later ones fail and have no effect
  };
  Kind kind = Kind::kNone;
  int64_t at = 0;  // index of the call, from 0
  int error = 0;

  std::string ToString() const;
};

// File system on top of the system's. Syncs only record which data is safe, because tests make
// thousands of them. Thread-safe.
class FaultFileSystem : public FileSystem {
 public:
  explicit FaultFileSystem(const Fault& fault) : fault_(fault) {}
  ~FaultFileSystem() override;

  int64_t calls() const { return static_cast<int64_t>(moves_bytes_.size()); }
  // Returns true if the call was a read or a write.
  bool MovesBytes(int64_t call) const { return moves_bytes_[static_cast<size_t>(call)]; }
  const std::string& faulty_call() const { return faulty_call_; }  // "Write fd", "Rename PATH"
  // Simulates a power loss: data that was written and not synced is lost.
  void CutPower();

  int Open(const char* path, int flags, mode_t mode) override;
  int Close(int fd) override;
  ssize_t Read(int fd, void* buffer, size_t n) override;
  ssize_t ReadAt(int fd, void* buffer, size_t n, off_t offset) override;
  ssize_t Write(int fd, const void* data, size_t n) override;
  int Sync(int fd) override;
  int Truncate(int fd, off_t size) override;
  int ChangeOwner(int fd, uid_t owner, gid_t group) override;
  int ChangeMode(int fd, mode_t mode) override;
  int Lock(int fd) override;
  void* Map(int fd, size_t size, int protection) override;
  int Stat(const char* path, struct stat* info) override;
  int LinkStat(const char* path, struct stat* info) override;
  int FileStat(int fd, struct stat* info) override;
  int Rename(const char* from, const char* to) override;
  int Exchange(const char* a, const char* b) override;
  int Unlink(const char* path) override;
  int MakeDirectory(const char* path) override;
  int RemoveDirectory(const char* path) override;
  int FreeSpace(const char* path, int64_t* bytes) override;
  int List(const char* path, std::vector<std::string>* names) override;

 private:
  using FileId = std::pair<uint64_t, uint64_t>;  // device, inode

  // Counts a call. Returns false and sets errno if the call must fail.
  bool Passes(const char* call, const std::string& on, bool moves_bytes = false);
  size_t Shorten(size_t n) const;  // for the last call that this thread counted
  void NoteUnsynced(int fd);

  const Fault fault_;
  std::mutex mutex_;
  std::vector<bool> moves_bytes_;  // indexed by call
  std::string faulty_call_;
  struct Unsynced {
    int fd = -1;     // duplicate of our own
    off_t size = 0;  // synced bytes
  };
  std::map<FileId, Unsynced> unsynced_;
};

// Stride of the faults: tests fail every Nth call, with another offset for each kind of fault. N is
// PLUMB_FAULT_STRIDE, or 8 by default, which takes seconds rather than minutes.
// tests/fault/every_call.sh sets it to 1.
class FaultStride {
 public:
  FaultStride();
  // Returns the first call to fail for a kind. step() is the distance to the next.
  int64_t First(Fault::Kind kind) const { return static_cast<int64_t>(kind) * 3 % step_; }
  int64_t step() const { return step_; }
  std::string ToString() const;  // "every call", "every 8th call"

 private:
  int64_t step_ = 8;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_FAULT_FAULT_FILE_SYSTEM_H_
