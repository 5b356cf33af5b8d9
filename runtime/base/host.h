// SPDX-License-Identifier: Apache-2.0
// The threads and the memory that a host program provides to plumb. They are set per thread for the
// duration of a call, so that two hosts in one process can each have their own.
#ifndef PLUMB_RUNTIME_BASE_HOST_H_
#define PLUMB_RUNTIME_BASE_HOST_H_

#include <cstddef>
#include <cstdint>

namespace plumb {

struct HostExecutor {
  void* context = nullptr;
  // Calls task(argument, i) once for every i in [0, n), on any threads, and returns when all are
  // done. Two calls with the same i never run at once.
  void (*run)(void* context, int32_t n, void (*task)(void* argument, int32_t i),
              void* argument) = nullptr;
};

struct HostAllocator {
  void* context = nullptr;
  void* (*allocate)(void* context, size_t size, size_t alignment) = nullptr;  // NULL: no memory
  void (*release)(void* context, void* memory, size_t size) = nullptr;
};

// Executor and allocator in use; null stands for plumb's own.
struct Host {
  const HostExecutor* executor = nullptr;
  const HostAllocator* allocator = nullptr;
};

namespace internal {
inline thread_local Host current_host;
}

// Returns the host of the calling thread.
inline const Host& CurrentHost() { return internal::current_host; }

// Makes `host` the current one of this thread while it lives, then restores the previous one. The
// executor and allocator must outlive all memory that is allocated meanwhile.
class ScopedHost {
 public:
  explicit ScopedHost(const Host& host) : before_(internal::current_host) {
    internal::current_host = host;
  }
  ~ScopedHost() { internal::current_host = before_; }
  ScopedHost(const ScopedHost&) = delete;
  ScopedHost& operator=(const ScopedHost&) = delete;

 private:
  const Host before_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_HOST_H_
