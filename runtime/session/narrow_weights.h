// SPDX-License-Identifier: Apache-2.0
// NarrowWeights: weights that lie in files in 16 bits, and their f32, which are made when they are
// first asked for. Any thread may ask; the rest is thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_NARROW_WEIGHTS_H_
#define PLUMB_RUNTIME_SESSION_NARROW_WEIGHTS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/base/aligned_buffer.h"

namespace plumb {

// How a file holds floating-point numbers.
enum class FloatFormat { kF32, kBf16, kF16 };
inline constexpr int64_t SizeOf(FloatFormat format) { return format == FloatFormat::kF32 ? 4 : 2; }

// `n` numbers at any address, as f32.
void WidenFloats(FloatFormat format, const char* from, int64_t n, int threads, float* to);

class NarrowWeights {
 public:
  struct Entry {
    FloatFormat format = FloatFormat::kF32;
    char* data = nullptr;  // null: the entry lies elsewhere
    int64_t elements = 0;
  };
  NarrowWeights(std::vector<Entry> entries, int threads);

  bool has(size_t entry) const { return entries_[entry].data != nullptr; }
  // The numbers as bf16, where the file has them so at an address for them; else null.
  uint16_t* bf16(size_t entry) const;
  // The f32 of all entries are made, unless they are there.
  float* floats(size_t entry) const;
  bool widened() const { return is_wide_.load(std::memory_order_acquire); }

  void Read(size_t entry, int64_t begin, int64_t n, float* to) const;
  // After f32 were written to: bf16 has them, rounded as SplitF32's high plane. The file has not.
  void Renew(size_t entry) const;

 private:
  const std::vector<Entry> entries_;
  const int threads_;
  mutable std::once_flag once_;
  mutable std::atomic<bool> is_wide_{false};
  mutable AlignedBuffer wide_;
  mutable std::vector<float*> at_;  // by entry, when they are wide
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_NARROW_WEIGHTS_H_
