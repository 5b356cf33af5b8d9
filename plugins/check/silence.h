// Catches what is printed to the standard streams, and counts it. One at a time; not thread-safe.
#ifndef PLUMB_PLUGINS_CHECK_SILENCE_H_
#define PLUMB_PLUGINS_CHECK_SILENCE_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace plumb::check {

// stdout and stderr go to memory while it lives.
class Silence {
 public:
  Silence() : memory_(memfd_create("printed", MFD_CLOEXEC)) {
    std::fflush(nullptr);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      saved_[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
      dup2(memory_, fd);
    }
  }
  // Ends it; the number of bytes that were printed.
  int64_t End() {
    std::fflush(nullptr);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      if (saved_[fd] < 0) continue;
      dup2(saved_[fd], fd);
      close(saved_[fd]);
    }
    struct stat info = {};
    const int64_t printed = fstat(memory_, &info) == 0 ? info.st_size : 0;
    close(memory_);
    return printed;
  }

 private:
  int memory_;
  int saved_[STDERR_FILENO + 1] = {-1, -1, -1};
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_SILENCE_H_
