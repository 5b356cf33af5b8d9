// SPDX-License-Identifier: Apache-2.0
#include "tests/session/count_mallocs.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace {

std::atomic<int64_t> count{0}, onednn_count{0}, onednn_bytes{0};

// The address range of a library's code, found without allocating; empty before it is loaded.
struct CodeRange {
  uintptr_t begin = 0, end = 0;

  static CodeRange Of(const char* library) {
    struct Search {
      const char* library;
      CodeRange found;
    } search = {library, {}};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
          Search& s = *static_cast<Search*>(data);
          if (std::strstr(info->dlpi_name, s.library) == nullptr) return 0;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& part = info->dlpi_phdr[i];
            if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
            s.found.begin = info->dlpi_addr + part.p_vaddr;
            s.found.end = s.found.begin + part.p_memsz;
          }
          return 1;
        },
        &search);
    return search.found;
  }
};

// The code of oneDNN, which is loaded at its first use. Searched whenever counts are read, until it
// is found; it does not move afterwards.
std::atomic<uintptr_t> onednn_begin{0}, onednn_end{0};
void FindOneDnn() {
  if (onednn_end.load() != 0) return;
  const CodeRange found = CodeRange::Of("libdnnl");
  onednn_begin.store(found.begin);
  onednn_end.store(found.end);
}

// Counts an allocation. `caller` is its return address.
void Count(const void* caller, size_t bytes) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(caller);
  if (at < onednn_begin.load(std::memory_order_relaxed) ||
      at >= onednn_end.load(std::memory_order_relaxed)) {
    count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  onednn_count.fetch_add(1, std::memory_order_relaxed);
  onednn_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

}  // namespace

namespace plumb {
int64_t MallocCount() {
  FindOneDnn();
  return count.load(std::memory_order_relaxed);
}
OneDnnMallocs OneDnnMallocCount() {
  FindOneDnn();
  return {onednn_count.load(), onednn_bytes.load()};
}
}  // namespace plumb

#ifdef __SANITIZE_ADDRESS__

// The sanitizer replaces malloc itself, and offers hooks.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             size_t),
                                                         void (*free_hook)(const volatile void*));
namespace {
const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t bytes) { Count(nullptr, bytes); }, [](const volatile void*) {});
}  // namespace

namespace plumb {
bool ExcludesOneDnnMallocs() { return false; }
int64_t LiveAlignedBytes() { return -1; }
}  // namespace plumb

#else

namespace {

// Blocks allocated by aligned_alloc. There are few at a time, so a search is quick. The table has a
// fixed size, because this code must not allocate.
class AlignedBlocks {
 public:
  void Add(void* memory, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Block& block : blocks_) {
      if (block.memory != nullptr) continue;
      block = {memory, bytes};
      bytes_ += static_cast<int64_t>(bytes);
      used_ = std::max(used_, static_cast<size_t>(&block - blocks_.data()) + 1);
      return;
    }
    std::abort();  // the table is full
  }
  void Remove(void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < used_; ++i) {
      if (blocks_[i].memory != memory) continue;
      bytes_ -= static_cast<int64_t>(blocks_[i].bytes);
      blocks_[i] = {nullptr, 0};
      return;
    }
  }
  int64_t bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
  }

 private:
  struct Block {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  std::mutex mutex_;
  std::array<Block, 4096> blocks_;
  size_t used_ = 0;  // later blocks are free
  int64_t bytes_ = 0;
};
AlignedBlocks aligned_blocks;

}  // namespace

namespace plumb {
bool ExcludesOneDnnMallocs() { return true; }
int64_t LiveAlignedBytes() { return aligned_blocks.bytes(); }
}  // namespace plumb

// glibc's own functions by their second names.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

void* malloc(size_t bytes) noexcept {
  Count(__builtin_return_address(0), bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes) noexcept {
  Count(__builtin_return_address(0), n * bytes);
  return __libc_calloc(n, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  Count(__builtin_return_address(0), bytes);
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  Count(__builtin_return_address(0), bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  Count(__builtin_return_address(0), bytes);
  void* memory = __libc_memalign(alignment, bytes);
  if (memory != nullptr) aligned_blocks.Add(memory, bytes);
  return memory;
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  Count(__builtin_return_address(0), bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) noexcept {
  if (memory != nullptr) aligned_blocks.Remove(memory);
  __libc_free(memory);
}
}

// Replaced, because the C++ library's operator new would hide the caller of malloc, for example
// oneDNN 3.
void* operator new(size_t bytes) {
  Count(__builtin_return_address(0), bytes);
  if (void* memory = __libc_malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes) {
  Count(__builtin_return_address(0), bytes);
  if (void* memory = __libc_malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }

#endif
