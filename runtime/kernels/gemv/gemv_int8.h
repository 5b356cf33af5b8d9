// SPDX-License-Identifier: Apache-2.0
// Product with an int8 matrix (quantize.h), y[m,n] = x[m,k] w[n,k]^T (+ bias[n]), of one row, as in
// decoding, or of many. x is quantized to 16 bits with a scale per group of 64, so that two 16-bit
// products are one instruction and their sums are exact. The error of an element of x is at most
// 1/65534 of the largest in its group, that of a weight 1/254.
//
// Each thread reads its tiles as one sequential stream. A lane is a row of w, so there are no
// horizontal sums. Rounding: element [i,j] is one chain of fused multiply-adds over groups; m and
// the partition of w never change it. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/gemv/quantize.h"

namespace plumb {

struct Int8GemvArgs {
  int64_t m, n, groups;
  // [m, groups, 64], by QuantizeInt16; for AmxInt8Gemv then split by SplitInt16, and followed by 15
  // readable rows.
  const int16_t* x;
  const float* x_scales;  // [groups, m], whose rows are x_pitch apart
  int64_t x_pitch;
  const int8_t* w;        // in the layout of Int8Elements
  const float* w_scales;  // in the layout of Int8Scales
  const float* bias;      // [n], or null
  float* y;               // [m, n]
};

// Computes the columns of y that correspond to the rows of w in blocks [begin, end).
using Int8GemvFn = void (*)(const Int8GemvArgs& args, int64_t begin, int64_t end);

Int8GemvFn AmxInt8Gemv();  // Requires: HasAmx().
// Returns the function for this processor's SIMD instructions. `vnni` requires UsesVnni().
Int8GemvFn SelectInt8Gemv(bool vnni);

// Splits each group of 64 into its 64 high bytes, which are signed, and its 64 low bytes, both in
// the order of a tile of w. Requires: HasAmx().
void SplitInt16(int16_t* x, int64_t groups);

// The loop order that the functions share, up to MultiplyInt8Blocks.

// Returns the number of columns of a block.
inline int64_t Int8Columns(const Int8GemvArgs& g, int64_t block) {
  return std::min(kInt8TileRows, g.n - block * kInt8TileRows);
}

// Sets the sums of a row of a block before the first group: the bias.
inline void StartInt8Sums(const Int8GemvArgs& g, int64_t block, float* sums) {
  std::fill_n(sums, kInt8TileRows, 0.0f);
  if (g.bias != nullptr) std::copy_n(g.bias + block * kInt8TileRows, Int8Columns(g, block), sums);
}

// Writes row i of the columns of a block.
inline void StoreInt8Sums(const Int8GemvArgs& g, int64_t i, int64_t block, const float* sums) {
  float* const y = g.y + i * g.n + block * kInt8TileRows;
  const int64_t columns = Int8Columns(g, block);
  // A constant size takes a few instructions.
  if (columns == kInt8TileRows) std::copy_n(sums, kInt8TileRows, y);
  if (columns < kInt8TileRows) std::copy_n(sums, columns, y);
}

// Computes rows [i, i + rows) of the columns of a block with Block::Multiply<rows>(g, i, block),
// for rows in [1, Block::kMaxRows].
template <class Block, int kRows = Block::kMaxRows>
void MultiplyInt8Block(const Int8GemvArgs& g, int64_t i, int64_t rows, int64_t block) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return MultiplyInt8Block<Block, kRows - 1>(g, i, rows, block);
  }
  Block::template Multiply<kRows>(g, i, block);
}

// Implements Int8GemvFn.
template <class Block>
void MultiplyInt8Blocks(const Int8GemvArgs& g, int64_t begin, int64_t end) {
  // Passes of nearly equal height, since 5 + 4 rows are faster than 8 + 1. The tiles of a block
  // stay in the cache between passes, and a part of x between blocks.
  constexpr int64_t kPartElements = 1 << 17;
  const int64_t height = CeilDiv(g.m, CeilDiv(g.m, int64_t{Block::kMaxRows}));
  const int64_t part =
      std::max<int64_t>(1, kPartElements / (g.groups * kInt8Group * height)) * height;
  for (int64_t first = 0; first < g.m; first += part) {
    for (int64_t block = begin; block < end; ++block) {
      for (int64_t i = first; i < std::min(g.m, first + part); i += height) {
        MultiplyInt8Block<Block>(g, i, std::min(height, g.m - i), block);
      }
    }
  }
}

// Rows of x as this processor's function reads them.
class Int8Rows {
 public:
  Int8Rows(int64_t m, int64_t k);

  int64_t scratch_bytes() const { return scales_at_ + AlignUp(m_ * groups_ * SizeOf(DType::kF32)); }
  // Quantizes x [m, k] into `scratch`, which is aligned to 64 bytes.
  void Quantize(const float* x, int threads, char* scratch) const;

  // Return the quantized rows, from row `row` on.
  int16_t* elements(char* scratch, int64_t row = 0) const {
    return reinterpret_cast<int16_t*>(scratch) + row * groups_ * kInt8Group;
  }
  float* scales(char* scratch, int64_t row = 0) const {
    return reinterpret_cast<float*>(scratch + scales_at_) + row;
  }

 private:
  int64_t m_, k_, groups_;
  int64_t scales_at_;
  bool split_;
};

// One product with a matrix of fixed shape, partitioned into tasks, for GemvJob (gemv_job.h).
class Int8Gemv {
 public:
  Int8Gemv(int64_t m, int64_t n, int64_t k);

  struct Operands {
    const int16_t* x;
    const float* x_scales;
    int64_t x_pitch;
    const int8_t* w;
    const float* w_scales;
    const float* bias;  // or null
    float* y;           // [m, n]
  };
  using Args = Int8GemvArgs;

  int64_t scratch_bytes() const { return 0; }
  Args Prepare(const Operands& o, int /*threads*/, void* /*scratch*/) const {
    return ForRows(m_, o);
  }
  // Returns the arguments for another number of rows.
  Args ForRows(int64_t m, const Operands& o) const {
    return {m, n_, groups_, o.x, o.x_scales, o.x_pitch, o.w, o.w_scales, o.bias, o.y};
  }

  int64_t tasks() const { return TasksFor(m_); }
  int64_t TasksFor(int64_t m) const;
  void RunTask(const Args& args, int64_t i) const {
    const Range range = TaskRange(Int8Blocks(n_), TasksFor(args.m), i);
    multiply_(args, range.begin, range.end);
  }

 private:
  int64_t m_, n_, groups_;
  Int8GemvFn multiply_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_
