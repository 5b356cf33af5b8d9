// Matrix products whose operands fit the caches: one thread, no set-up, no allocation, f32. From
// the 7x16x16 of a study model, where a library call costs more than the product, to the slabs that
// matmul_int8.cc multiplies by some blocks of a matrix. Stateless, thread-safe.
//
// Every element of c is one chain of fused multiply-adds over k in ascending order, so a product
// cut into blocks of rows or columns gives the same bits as the whole.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_

#include <cstdint>

#include "runtime/onednn/gemm.h"

namespace plumb {

// A product of f32 operands (onednn/gemm.h); m, n >= 1, k >= 0. c starts from `bias` [n], where it is
// not null and `accumulate` is not set, and shares no memory with the operands. `scratch` holds
// SmallGemmScratch(k) floats, 64-byte aligned.
using SmallGemmFn = void (*)(const GemmArgs& args, const float* bias, float* scratch);

// The function for this processor.
SmallGemmFn SelectSmallGemm(bool transpose_a, bool transpose_b);

// Longer sums are made in parts of this many terms.
inline constexpr int64_t kMaxSmallGemmTerms = 512;
inline int64_t SmallGemmScratch(int64_t k) {
  return 32 * (k < kMaxSmallGemmTerms ? k : kMaxSmallGemmTerms);  // a panel of b
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_SMALL_GEMM_H_
