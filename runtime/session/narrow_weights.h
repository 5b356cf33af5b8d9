// SPDX-License-Identifier: Apache-2.0
// NarrowWeights: weights that files store in 16 bits, and their f32 copies, which are made when
// first requested. floats() is thread-safe; the rest is thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_NARROW_WEIGHTS_H_
#define PLUMB_RUNTIME_SESSION_NARROW_WEIGHTS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/base/aligned_buffer.h"

namespace plumb {

// Storage format of floating-point numbers in a file.
enum class FloatFormat { kF32, kBf16, kF16 };
inline constexpr int64_t SizeOf(FloatFormat format) { return format == FloatFormat::kF32 ? 4 : 2; }

// Converts `n` numbers at any alignment to f32.
void WidenFloats(FloatFormat format, const char* from, int64_t n, int threads, float* to);

class NarrowWeights {
 public:
  struct Entry {
    FloatFormat format = FloatFormat::kF32;
    char* data = nullptr;  // null: the entry is stored elsewhere
    int64_t elements = 0;
  };
  NarrowWeights(std::vector<Entry> entries, int threads);

  bool has(size_t entry) const { return entries_[entry].data != nullptr; }
  // Returns the file's bf16 if the entry is bf16 and aligned for it, else null.
  uint16_t* bf16(size_t entry) const;
  // Returns the entry's f32. The first call converts all entries.
  float* floats(size_t entry) const;
  bool widened() const { return is_wide_.load(std::memory_order_acquire); }

  void Read(size_t entry, int64_t begin, int64_t n, float* to) const;
  // Updates bf16 after its f32 were written, rounded as SplitF32's high plane. The file does not
  // change.
  void Renew(size_t entry) const;

 private:
  const std::vector<Entry> entries_;
  const int threads_;
  mutable std::once_flag once_;
  mutable std::atomic<bool> is_wide_{false};
  mutable AlignedBuffer wide_;
  mutable std::vector<float*> at_;  // indexed by entry, once they are converted
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_NARROW_WEIGHTS_H_
