// SPDX-License-Identifier: Apache-2.0
// Matrix products of bf16 operands by AMX, whose tiles are 16 rows of 32 bf16 terms. Both operands
// of a block are packed into tiles, some terms at a time, so that they stay in the L2 cache.
//
// Rounding: an element is a function of k alone; the size of a block and its place never change it.
// Denormal operands and sums are zero. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_TILE_GEMM_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_TILE_GEMM_H_

#include <cstdint>

#include "runtime/onednn/gemm.h"

namespace plumb {

// Returns the bytes of scratch for a block of at most these sizes.
int64_t TileGemmScratch(int64_t rows, int64_t columns, int64_t k);

// Computes the product. `scratch` is aligned to 64 bytes. Requires: UsesAmx(); k >= 1.
void TileGemm(const GemmArgs& args, void* scratch);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_TILE_GEMM_H_
