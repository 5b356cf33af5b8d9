#include "tests/session/count_mallocs.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<int64_t> count{0};
void Count() { count.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

namespace plumb {
int64_t MallocCount() { return count.load(std::memory_order_relaxed); }
}  // namespace plumb

#ifdef __SANITIZE_ADDRESS__

// The sanitizer has malloc's place already, and tells whom it may concern.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             size_t),
                                                         void (*free_hook)(const volatile void*));
namespace {
const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t) { Count(); }, [](const volatile void*) {});
}  // namespace

#else

// glibc's own functions under their second names. Operator new calls malloc.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

void* malloc(size_t bytes) noexcept {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes) noexcept {
  Count();
  return __libc_calloc(n, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  Count();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  Count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  Count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  Count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) noexcept { __libc_free(memory); }
}

#endif
