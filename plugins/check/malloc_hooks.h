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

// Counter of the calling thread's allocations, from construction on. At most one per thread.
class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  // Makes allocation number `k` from now (1 is the next) return null, once.
  void FailAt(int64_t k);

  int64_t allocations() const;  // number of allocating calls, including a failed one
  int64_t frees() const;        // number of calls that freed memory
  int64_t outstanding() const;  // blocks allocated minus blocks freed
};

// Block of memory that was allocated and not freed.
struct Block {
  const void* address = nullptr;
  size_t size = 0;
};

// Copies the live blocks that this thread's latest watch has seen, at most `cap`, to `blocks`.
// Returns their number.
size_t LiveBlocks(Block* blocks, size_t cap);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_MALLOC_HOOKS_H_
