// SPDX-License-Identifier: Apache-2.0
// Loop order of an int8 GEMV (gemv_int8.h), shared by its kernels.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_BLOCKS_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/kernels/gemv/gemv_int8.h"

namespace plumb {

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

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_BLOCKS_H_
