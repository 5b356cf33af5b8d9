// SPDX-License-Identifier: Apache-2.0
// Loop order of an int8 GEMV (gemv_int8.h), shared by its kernels.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_BLOCKS_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/kernels/gemv/gemv_int8.h"

namespace plumb {

// Writes row i of the columns of a block, plus the bias.
inline void StoreInt8Sums(const Int8GemvArgs& g, int64_t i, int64_t block, const float* sums) {
  const int64_t j = block * kInt8TileRows, columns = std::min(kInt8TileRows, g.n - j);
  float* const y = g.y + i * g.n + j;
  for (int64_t c = 0; c < columns; ++c) {
    y[c] = g.bias == nullptr ? sums[c] : sums[c] + g.bias[j + c];
  }
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
  // stay in the cache between passes.
  const int64_t passes = CeilDiv(g.m, Block::kMaxRows);
  const int64_t height = CeilDiv(g.m, passes);
  for (int64_t block = begin; block < end; ++block) {
    for (int64_t i = 0; i < g.m; i += height) {
      MultiplyInt8Block<Block>(g, i, std::min(height, g.m - i), block);
    }
  }
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_BLOCKS_H_
