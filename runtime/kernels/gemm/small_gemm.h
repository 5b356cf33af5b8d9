// SPDX-License-Identifier: Apache-2.0
// GEMM of operands that fit the caches: one thread, no set-up, no allocation, f32. From the 7x16x16
// of a study model, where a library call costs more than the product, to the row blocks that
// matmul_int8.cc multiplies by dequantized blocks of a matrix. Stateless, thread-safe.
//
// Rounding: one ascending-k FMA chain per element, started from the bias. Partitioning rows or
// columns never changes it.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_

#include <cstdint>

#include "runtime/onednn/gemm.h"

namespace plumb {

// A product of f32 operands (onednn/gemm.h); m, n >= 1, k >= 0. c starts from `bias` [n], if that
// is not null and `accumulate` is not set, and does not overlap the operands. `scratch` holds
// SmallGemmScratch(k) floats, 64-byte aligned.
using SmallGemmFn = void (*)(const GemmArgs& args, const float* bias, float* scratch);

// The function for this processor.
SmallGemmFn SelectSmallGemm(bool transpose_a, bool transpose_b);

// The KC block: longer sums are accumulated in parts of at most this many terms.
inline constexpr int64_t kMaxSmallGemmTerms = 512;
inline int64_t SmallGemmScratch(int64_t k) {
  return 32 * (k < kMaxSmallGemmTerms ? k : kMaxSmallGemmTerms);  // a panel of b
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_
