// SPDX-License-Identifier: Apache-2.0
#include "cli/mapped_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace plumb::cli {
namespace {

// /proc/self/maps, character by character.
class Maps {
 public:
  Maps() : fd_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Maps() {
    if (fd_ >= 0) close(fd_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  char Next() {  // 0 at the end
    if (at_ == size_) {
      ssize_t n;
      do n = read(fd_, buffer_, sizeof(buffer_));
      while (n < 0 && errno == EINTR);
      if (n <= 0) return '\0';
      at_ = 0;
      size_ = static_cast<size_t>(n);
    }
    return buffer_[at_++];
  }
  // Reads a hexadecimal number and the character behind it.
  uintptr_t NextNumber() {
    uintptr_t number = 0;
    for (;;) {
      const char c = Next();
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && (c < 'a' || c > 'f')) return number;
      number = number * 16 + static_cast<uintptr_t>(is_digit ? c - '0' : c - 'a' + 10);
    }
  }

 private:
  const int fd_;
  size_t at_ = 0, size_ = 0;
  char buffer_[1024];
};

}  // namespace

bool FindMappedFile(const void* address, char* path, size_t capacity) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  Maps maps;
  for (;;) {
    // "begin-end rw-p offset device inode   path"
    const uintptr_t begin = maps.NextNumber(), end = maps.NextNumber();
    if (end == 0) return false;
    const bool is_here = wanted >= begin && wanted < end;
    size_t length = 0;
    for (char c = maps.Next(); c != '\n' && c != '\0'; c = maps.Next()) {
      if (length == 0 && c != '/') continue;
      if (is_here && length + 1 < capacity) path[length] = c;
      if (length + 1 < capacity) ++length;
    }
    if (!is_here) continue;
    path[length] = '\0';
    return length > 0;
  }
}

}  // namespace plumb::cli
