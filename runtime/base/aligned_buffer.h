// SPDX-License-Identifier: Apache-2.0
// AlignedBuffer: owned, zero-filled memory, aligned to 64 bytes. It comes from the current host's
// allocator (host.h) if there is one. Large buffers use huge pages if the system has them, because
// page faults are otherwise a large part of a training step. Move-only; thread-compatible.
#ifndef PLUMB_RUNTIME_BASE_ALIGNED_BUFFER_H_
#define PLUMB_RUNTIME_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/host.h"

namespace plumb {

inline constexpr int64_t kAlignment = 64;
inline constexpr int64_t AlignUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes);  // Requires: bytes >= 0. Throws std::bad_alloc.
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  std::byte* data() const { return memory_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory_.get());
  }
  int64_t size() const { return size_; }

 private:
  struct Free {
    Free() : allocator(nullptr), size(0) {}
    Free(const HostAllocator* by, size_t bytes) : allocator(by), size(bytes) {}
    const HostAllocator* allocator;  // null: std::aligned_alloc
    size_t size;                     // number of bytes that were requested from the allocator
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  int64_t size_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_ALIGNED_BUFFER_H_
