// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/count_allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0};

void* Allocate(std::size_t bytes, std::size_t alignment) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  const std::size_t whole = bytes == 0 ? 1 : (bytes + alignment - 1) / alignment;
  return std::aligned_alloc(alignment, whole * alignment);
}

void* AllocateOrAbort(std::size_t bytes, std::size_t alignment) {
  void* memory = Allocate(bytes, alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

constexpr std::size_t kDefault = alignof(std::max_align_t);

std::size_t Size(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

namespace plumb {
int64_t AllocationCount() { return count.load(std::memory_order_relaxed); }
}  // namespace plumb

// Replaces all forms, so that memory never passes from one allocator to another.
void* operator new(std::size_t n) { return AllocateOrAbort(n, kDefault); }
void* operator new[](std::size_t n) { return AllocateOrAbort(n, kDefault); }
void* operator new(std::size_t n, std::align_val_t a) { return AllocateOrAbort(n, Size(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return AllocateOrAbort(n, Size(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return Allocate(n, kDefault); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return Allocate(n, kDefault);
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocate(n, Size(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocate(n, Size(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
