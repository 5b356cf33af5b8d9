// SPDX-License-Identifier: Apache-2.0
// Small GEMM: f32 operands that fit the caches; one thread, no set-up, no allocation. It covers
// sizes from the 7x16x16 of a study model, where a library call costs more than the product, to the
// row blocks of dequantized_gemm.cc. Stateless, thread-safe.
//
// Rounding: one ascending-k FMA chain per element, started from its initial value. Partitioning
// rows or columns never changes it.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_

#include <cstdint>

#include "runtime/onednn/gemm.h"

namespace plumb {

// Initial values of c: row i starts from sums[i * ld + j], which may be c itself. A bias has ld 0.
struct GemmStart {
  const float* sums = nullptr;  // null: zeros
  int64_t ld = 0;
};

// Computes a product of f32 operands (onednn/gemm.h) that starts from `start`, or from c if
// `accumulate` is set. `scratch` has SmallGemmScratch(k) floats and is aligned to 64 bytes.
// Requires: m, n >= 1; k >= 0; c does not overlap the operands.
using SmallGemmFn = void (*)(const GemmArgs& args, const GemmStart& start, float* scratch);

// Returns the function for this processor.
SmallGemmFn SelectSmallGemm(bool transpose_a, bool transpose_b);

// KC block: longer sums are accumulated in parts of at most this many terms.
inline constexpr int64_t kMaxSmallGemmTerms = 512;
inline int64_t SmallGemmScratch(int64_t k) {
  return 32 * (k < kMaxSmallGemmTerms ? k : kMaxSmallGemmTerms);  // size of a panel of b
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_
