// SPDX-License-Identifier: Apache-2.0
// oneDNN's BLAS-like matrix products, of f32 and of bf16 operands, on the calling thread alone.
// Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_ONEDNN_GEMM_H_
#define PLUMB_RUNTIME_ONEDNN_GEMM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// Row-major c[m, n] = op(a) op(b), or c + op(a) op(b). Leading dimensions in elements.
struct GemmArgs {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  const void* a;  // [m, k], or [k, m] when transposed
  int64_t lda;
  const void* b;  // [k, n], or [n, k] when transposed
  int64_t ldb;
  bool accumulate;
  float* c;
  int64_t ldc;
};

// `operands`: kF32 or kBF16, of a and b; sums are f32. The library allocates its packed operands:
// one block a call, and in version 3 some bytes for each of their panels besides.
// kResourceExhausted without memory for them, or for the code that the first product generates;
// kFailedPrecondition without a usable library, where a plan has no such product. REQUIRES: for bf16 operands, OneDnn().bf16_gemm.
absl::Status OneDnnGemm(DType operands, const GemmArgs& args);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_GEMM_H_
