// SPDX-License-Identifier: Apache-2.0
// oneDNN's BLAS-like GEMM with f32 or bf16 operands, on the calling thread only.
// Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_ONEDNN_GEMM_H_
#define PLUMB_RUNTIME_ONEDNN_GEMM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// Arguments of row-major c[m, n] = op(a) op(b), or c + op(a) op(b). Leading dimensions in elements.
struct GemmArgs {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  const void* a;  // [m, k], or [k, m] if transposed
  int64_t lda;
  const void* b;  // [k, n], or [n, k] if transposed
  int64_t ldb;
  bool accumulate;
  float* c;
  int64_t ldc;
};

// Computes the product of operands of type kF32 or kBF16, with f32 sums. The library allocates the
// packed operands: one block per call, and in version 3 some bytes for each of their panels.
// Requires: OneDnn().bf16_gemm for bf16 operands.
// Errors: kFailedPrecondition if there is no usable library; kResourceExhausted if there is no
// memory for the operands, or for the code that the first product generates; kUnimplemented if the
// processor has no such product.
absl::Status OneDnnGemm(DType operands, const GemmArgs& args);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_GEMM_H_
