// SPDX-License-Identifier: Apache-2.0
// Interposes the allocator. Linked into a program, this module's malloc, calloc, realloc, memalign,
// aligned_alloc, posix_memalign and free stand in front of the C library's for the
// program and for every library that it loads; operator new reaches them through malloc. What a
// thread allocates is counted while that thread watches, and may be made to fail.
//
// Not there (AllocationsAreSeen() is false) in a build with a sanitizer, which brings an allocator
// of its own, and with other C libraries than glibc.
#ifndef PLUMB_PLUGINS_CHECK_MALLOC_HOOKS_H_
#define PLUMB_PLUGINS_CHECK_MALLOC_HOOKS_H_

#include <cstddef>
#include <cstdint>

namespace plumb::check {

// Whether an allocation of this program, made as a library makes it, reaches the hooks.
bool AllocationsAreSeen();

// Counts what the calling thread allocates, from its construction on. One at a time a thread.
class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  // From now on allocation number `k` (1 is the next one) returns null, once.
  void FailAt(int64_t k);

  int64_t allocations() const;  // calls that allocate, the failed one included
  int64_t frees() const;        // calls that gave some back
  int64_t outstanding() const;  // blocks allocated less blocks freed
};

// A block of memory that was allocated and not freed.
struct Block {
  const void* address = nullptr;
  size_t size = 0;
};

// The blocks that this thread's latest watch has seen allocated and not freed, the first `cap` of
// them at most, into `blocks`; returns how many.
size_t LiveBlocks(Block* blocks, size_t cap);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_MALLOC_HOOKS_H_
