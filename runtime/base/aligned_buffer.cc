#include "runtime/base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace plumb {
namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;
}  // namespace

AlignedBuffer::AlignedBuffer(int64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool large = bytes >= 2 * kHugePage;
  const int64_t alignment = large ? kHugePage : kAlignment;
  const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
  if (p == nullptr) throw std::bad_alloc();
  if (large) madvise(p, static_cast<size_t>(rounded), MADV_HUGEPAGE);  // a hint; failing is fine
  std::memset(p, 0, static_cast<size_t>(rounded));
  memory_.reset(static_cast<std::byte*>(p));
}

void AlignedBuffer::Free::operator()(std::byte* p) const { std::free(p); }

}  // namespace plumb
