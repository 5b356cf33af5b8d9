// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/unfinished_paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>

namespace plumb {
namespace {

constexpr int kSlots = 64;
// Greater than the depth of any directory that plumb writes.
constexpr int kMaxDepth = 4;
// Several attempts, since a thread that still writes may put a file into a directory that has just
// been emptied.
constexpr int kAttempts = 3;

struct Slot {
  std::atomic_flag taken = ATOMIC_FLAG_INIT;
  std::atomic<uint32_t> version{0};  // odd while `path` is on the list
  pid_t process = 0;
  char path[PATH_MAX];
};

Slot slots[kSlots];

// Directory entry in the layout of the system call getdents64, which, unlike readdir, a signal
// handler may use.
struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t bytes;
  uint8_t type;
  char name[];
};

bool IsDotOrDots(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

void Remove(int directory, const char* name, int depth);

void EmptyDirectory(int directory, const char* name, int depth) {
  const int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  alignas(DirectoryEntry) char entries[1024];
  for (;;) {
    const long bytes = syscall(SYS_getdents64, fd, entries, sizeof(entries));
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const DirectoryEntry*>(entries + at);
      if (!IsDotOrDots(entry->name)) Remove(fd, entry->name, depth + 1);
      at += entry->bytes;
    }
  }
  close(fd);
}

void Remove(int directory, const char* name, int depth) {
  struct stat info;
  if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISDIR(info.st_mode)) {
    unlinkat(directory, name, 0);
    return;
  }
  for (int attempt = 0; attempt < kAttempts && depth < kMaxDepth; ++attempt) {
    EmptyDirectory(directory, name, depth);
    if (unlinkat(directory, name, AT_REMOVEDIR) == 0) return;
  }
}

}  // namespace

UnfinishedPath::UnfinishedPath(const std::string& path) {
  if (path.size() >= sizeof(Slot::path)) return;
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots[i];
    if (slot.taken.test_and_set(std::memory_order_acquire)) continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.process = getpid();
    slot.version.fetch_add(1, std::memory_order_release);
    slot_ = i;
    return;
  }
}

UnfinishedPath::~UnfinishedPath() {
  if (slot_ < 0) return;
  slots[slot_].version.fetch_add(1, std::memory_order_release);
  slots[slot_].taken.clear(std::memory_order_release);
}

void RemoveUnfinishedPaths() {
  char path[PATH_MAX];
  for (Slot& slot : slots) {
    const uint32_t version = slot.version.load(std::memory_order_acquire);
    if (version % 2 == 0 || slot.process != getpid()) continue;
    std::memcpy(path, slot.path, sizeof(path));
    // If the slot got another path meanwhile, the copy may be a mixture of both. Adding nothing
    // reads the version after the copy; a fence would do, but the thread sanitizer does not support
    // it.
    if (slot.version.fetch_add(0, std::memory_order_acq_rel) != version) continue;
    Remove(AT_FDCWD, path, 0);
  }
}

}  // namespace plumb
