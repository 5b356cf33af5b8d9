// SPDX-License-Identifier: Apache-2.0
// Interposes the allocator. Linked into a program, this module's malloc, calloc, realloc, memalign,
// aligned_alloc, posix_memalign and free replace those of the C library for the program and every
// library that it loads; operator new reaches them through malloc. Allocations of a thread are
// counted while it has a watch, and can be made to fail.
//
// Disabled (AllocationsAreSeen() returns false) in builds with a sanitizer, which has its own
// allocator, and with C libraries other than glibc.
#ifndef PLUMB_PLUGINS_CHECK_MALLOC_HOOKS_H_
#define PLUMB_PLUGINS_CHECK_MALLOC_HOOKS_H_

#include <cstddef>
#include <cstdint>

namespace plumb::check {

// Returns true if the hooks see allocations that a library makes.
bool AllocationsAreSeen();

// Block of memory that was allocated and not freed.
struct Block {
  const void* address = nullptr;
  size_t size = 0;
};
inline constexpr size_t kMaxBlocks = 1024;

// Counter of the calling thread's allocations, from construction on. At most one per thread.
class AllocationWatch {
 public:
  // Makes allocation number `failing` (1 is the first) return null; 0: none.
  explicit AllocationWatch(int64_t failing = 0);
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  int64_t allocations() const;  // number of allocating calls, including a failed one
  int64_t frees() const;        // number of calls that freed memory
  // Blocks that are allocated now, at most kMaxBlocks.
  const Block* blocks() const;
  size_t n_blocks() const;
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_MALLOC_HOOKS_H_
