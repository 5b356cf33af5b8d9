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

constexpr size_t kMaxBlocks = 1024;

// State without constructor and destructor, so that a thread's first allocation needs no
// allocation. In an executable, for which this file is meant, the access is one instruction.
struct ThreadState {
  bool counting;
  int64_t allocations, frees, outstanding;
  int64_t fail_in;  // countdown to the allocation that fails; 0: none
  size_t blocks;
  Block block[kMaxBlocks];
};
thread_local ThreadState state;

}  // namespace

AllocationWatch::AllocationWatch() {
  state = ThreadState();
  state.counting = true;
}
AllocationWatch::~AllocationWatch() { state.counting = false; }
void AllocationWatch::FailAt(int64_t k) { state.fail_in = k; }
int64_t AllocationWatch::allocations() const { return state.allocations; }
int64_t AllocationWatch::frees() const { return state.frees; }
int64_t AllocationWatch::outstanding() const { return state.outstanding; }

size_t LiveBlocks(Block* blocks, size_t cap) {
  size_t n = 0;
  for (; n < state.blocks && n < cap; ++n) blocks[n] = state.block[n];
  return n;
}

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

// Counts one request. Returns false if it has to fail.
bool Admit() {
  if (!state.counting) return true;
  ++state.allocations;
  return state.fail_in == 0 || --state.fail_in != 0;
}

void* Refused() {
  errno = ENOMEM;
  return nullptr;
}

void* Born(void* block, size_t size) {
  if (block != nullptr && state.counting) {
    ++state.outstanding;
    if (state.blocks < kMaxBlocks) state.block[state.blocks++] = {block, size};
  }
  return block;
}

void Forget(const void* block) {
  for (size_t i = 0; i < state.blocks; ++i) {
    if (state.block[i].address == block) {
      state.block[i] = state.block[--state.blocks];
      return;
    }
  }
}

void Died(const void* block) {
  if (block == nullptr || !state.counting) return;
  ++state.frees;
  --state.outstanding;
  Forget(block);
}

void* Aligned(size_t alignment, size_t size) {
  return Admit() ? Born(__libc_memalign(alignment, size), size) : Refused();
}

}  // namespace

bool AllocationsAreSeen() {
  // The pointers are volatile, because the compiler would remove a visible pair of calls.
  void* (*volatile allocate)(size_t) = &malloc;
  void (*volatile release)(void*) = &free;
  AllocationWatch watch;
  release(allocate(1));
  return watch.allocations() == 1 && watch.outstanding() == 0;
}

}  // namespace plumb::check

extern "C" {

__attribute__((visibility("default"))) void* malloc(size_t size) noexcept {
  using namespace plumb::check;  // NOLINT(google-build-using-namespace): this function is not in a
                                 // namespace
  return Admit() ? Born(__libc_malloc(size), size) : Refused();
}

__attribute__((visibility("default"))) void* calloc(size_t n, size_t size) noexcept {
  using namespace plumb::check;  // NOLINT(google-build-using-namespace): this function is not in a
                                 // namespace
  return Admit() ? Born(__libc_calloc(n, size), n * size) : Refused();
}

__attribute__((visibility("default"))) void* realloc(void* block, size_t size) noexcept {
  using namespace plumb::check;  // NOLINT(google-build-using-namespace): this function is not in a
                                 // namespace
  if (!Admit()) return Refused();
  void* moved = __libc_realloc(block, size);
  // A block that could not grow is unchanged; realloc(p, 0) has freed it.
  if (moved != nullptr || size == 0) {
    Died(block);
    Born(moved, size);
  }
  return moved;
}

__attribute__((visibility("default"))) void* memalign(size_t alignment, size_t size) noexcept {
  return plumb::check::Aligned(alignment, size);
}

__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return plumb::check::Aligned(alignment, size);
}

__attribute__((visibility("default"))) int posix_memalign(void** out, size_t alignment,
                                                          size_t size) noexcept {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  void* block = plumb::check::Aligned(alignment, size);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

__attribute__((visibility("default"))) void free(void* block) noexcept {
  plumb::check::Died(block);
  __libc_free(block);
}

}  // extern "C"

#else

namespace plumb::check {
bool AllocationsAreSeen() { return false; }
}  // namespace plumb::check

#endif  // PLUMB_MALLOC_HOOKS
