// SPDX-License-Identifier: Apache-2.0
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
  const auto size = static_cast<size_t>(rounded);
  const HostAllocator* const host = CurrentHost().allocator;
  void* const p = host != nullptr
                      ? host->allocate(host->context, size, static_cast<size_t>(alignment))
                      : std::aligned_alloc(static_cast<size_t>(alignment), size);
  if (p == nullptr) throw std::bad_alloc();
  if (large && host == nullptr) madvise(p, size, MADV_HUGEPAGE);  // a hint; failing is fine
  std::memset(p, 0, size);
  memory_ = std::unique_ptr<std::byte[], Free>(static_cast<std::byte*>(p), Free(host, size));
}

void AlignedBuffer::Free::operator()(std::byte* p) const {
  if (allocator != nullptr) {
    allocator->release(allocator->context, p, size);
  } else {
    std::free(p);
  }
}

}  // namespace plumb
