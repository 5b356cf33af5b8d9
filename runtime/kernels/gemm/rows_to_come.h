// Rows of matrices, asked for (read_ahead.h) before they are packed or multiplied. Values.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_ROWS_TO_COME_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_ROWS_TO_COME_H_

#include <cstdint>
#include <limits>

#include "runtime/base/divide.h"
#include "runtime/base/read_ahead.h"

namespace plumb {

// Rows that are packed lie apart, and are too short for the processor to see where the next ones
// will be. Packing asks for them this many rows before, about as long as the last cache takes to
// answer; beyond the matrix it does no harm, as a prefetch cannot fault.
//
// Always inlined: to gcc a function that only prefetches has no effect, and its calls are dropped.
inline constexpr int64_t kRowsAhead = 32;
[[gnu::always_inline]] inline void AskForRow(const void* row, int64_t bytes) {
  const char* const p = static_cast<const char*>(row);
  for (int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(p + i);
  __builtin_prefetch(p + bytes - 1);  // rows need not begin with a line
}

// Rows of a matrix that are needed later than they are asked for: from the second-level cache they
// come in time.
class RowsToCome {
 public:
  RowsToCome() = default;
  // `rows` of `row_bytes`, ld_bytes apart. Rows beyond the matrix do no harm.
  RowsToCome(const void* first, int64_t ld_bytes, int64_t row_bytes,
             int64_t rows = std::numeric_limits<int64_t>::max())
      : row_(static_cast<const char*>(first)),
        ld_bytes_(ld_bytes),
        row_bytes_(row_bytes),
        rows_(rows) {}

  // Of all rows, where their number was given.
  int64_t lines() const { return rows_ * CeilDiv(row_bytes_, kCacheLine); }

  // Asks for as many cache lines, rounded up to the end of a row, one after the other as they lie
  // in memory; for none after the last row.
  void Ask(int64_t lines) {
    for (int64_t i = 0; i < lines && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kCacheLine;
      if (at_ >= row_bytes_) {
        at_ = 0;
        row_ += ld_bytes_;
        --rows_;
      }
    }
  }

 private:
  const char* row_ = nullptr;
  int64_t ld_bytes_ = 0, row_bytes_ = 0, rows_ = 0, at_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_ROWS_TO_COME_H_
