// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/malloc_hooks.h"

#include <cerrno>
#include <cstdlib>

#if defined(__has_feature)
#define PLUMB_HAS_FEATURE(x) __has_feature(x)
#else
#define PLUMB_HAS_FEATURE(x) 0
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !PLUMB_HAS_FEATURE(address_sanitizer) && !PLUMB_HAS_FEATURE(thread_sanitizer) &&         \
    !PLUMB_HAS_FEATURE(memory_sanitizer)
#define PLUMB_MALLOC_HOOKS 1
#endif

namespace plumb::check {
namespace {

// State without constructor and destructor, so that a thread's first allocation needs no
// allocation. In an executable, for which this file is meant, the access is one instruction.
struct ThreadState {
  bool counting;
  int64_t allocations, frees;
  int64_t fail_in;  // countdown to the allocation that fails; 0: none
  size_t blocks;
  Block block[kMaxBlocks];
};
thread_local ThreadState state;

}  // namespace

AllocationWatch::AllocationWatch(int64_t failing) {
  state.counting = true;
  state.allocations = state.frees = 0;
  state.fail_in = failing;
  state.blocks = 0;
}
AllocationWatch::~AllocationWatch() { state.counting = false; }
int64_t AllocationWatch::allocations() const { return state.allocations; }
int64_t AllocationWatch::frees() const { return state.frees; }
const Block* AllocationWatch::blocks() const { return state.block; }
size_t AllocationWatch::n_blocks() const { return state.blocks; }

}  // namespace plumb::check

#if PLUMB_MALLOC_HOOKS

// Alternative names of glibc's own allocator, which exist for this purpose.
extern "C" {
void* __libc_malloc(size_t size) noexcept;
void* __libc_calloc(size_t n, size_t size) noexcept;
void* __libc_realloc(void* block, size_t size) noexcept;
void* __libc_memalign(size_t alignment, size_t size) noexcept;
void __libc_free(void* block) noexcept;
}

namespace plumb::check {
namespace {

void Record(void* block, size_t size) {
  if (block == nullptr || !state.counting || state.blocks == kMaxBlocks) return;
  state.block[state.blocks++] = {block, size};
}

void Forget(const void* block) {
  if (block == nullptr || !state.counting) return;
  ++state.frees;
  for (size_t i = 0; i < state.blocks; ++i) {
    if (state.block[i].address != block) continue;
    state.block[i] = state.block[--state.blocks];
    return;
  }
}

// Counts a request, and performs it unless it has to fail.
template <class Allocate>
void* Request(size_t size, const Allocate& allocate) {
  if (state.counting) {
    ++state.allocations;
    if (state.fail_in != 0 && --state.fail_in == 0) {
      errno = ENOMEM;
      return nullptr;
    }
  }
  void* block = allocate();
  Record(block, size);
  return block;
}

void* Aligned(size_t alignment, size_t size) {
  return Request(size, [=] { return __libc_memalign(alignment, size); });
}

}  // namespace

bool AllocationsAreSeen() {
  // The pointers are volatile, because the compiler would remove a visible pair of calls.
  void* (*volatile allocate)(size_t) = &malloc;
  void (*volatile release)(void*) = &free;
  const AllocationWatch watch;
  release(allocate(1));
  return watch.allocations() == 1 && watch.frees() == 1;
}

}  // namespace plumb::check

#define PLUMB_HOOK extern "C" __attribute__((visibility("default")))

PLUMB_HOOK void* malloc(size_t size) noexcept {
  return plumb::check::Request(size, [=] { return __libc_malloc(size); });
}

PLUMB_HOOK void* calloc(size_t n, size_t size) noexcept {
  return plumb::check::Request(n * size, [=] { return __libc_calloc(n, size); });
}

PLUMB_HOOK void* realloc(void* block, size_t size) noexcept {
  return plumb::check::Request(size, [=] {
    void* moved = __libc_realloc(block, size);
    // A block that could not grow is unchanged; realloc(p, 0) has freed it.
    if (moved != nullptr || size == 0) plumb::check::Forget(block);
    return moved;
  });
}

PLUMB_HOOK void* memalign(size_t alignment, size_t size) noexcept {
  return plumb::check::Aligned(alignment, size);
}

PLUMB_HOOK void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return plumb::check::Aligned(alignment, size);
}

PLUMB_HOOK int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  void* block = plumb::check::Aligned(alignment, size);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

PLUMB_HOOK void free(void* block) noexcept {
  plumb::check::Forget(block);
  __libc_free(block);
}

#undef PLUMB_HOOK

#else

namespace plumb::check {
bool AllocationsAreSeen() { return false; }
}  // namespace plumb::check

#endif  // PLUMB_MALLOC_HOOKS
