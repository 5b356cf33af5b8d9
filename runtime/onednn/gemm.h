// SPDX-License-Identifier: Apache-2.0
// oneDNN's BLAS-like GEMM with f32 or bf16 operands, on the calling thread only, and its speed on
// all threads.
#ifndef PLUMB_RUNTIME_ONEDNN_GEMM_H_
#define PLUMB_RUNTIME_ONEDNN_GEMM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
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
// processor has no such product. Thread-safe.
absl::Status OneDnnGemm(DType operands, const GemmArgs& args);

// Measures how fast this machine multiplies matrices, as a yardstick for models' passes. Each
// thread multiplies 1,024 rows, or 2,048 of bf16, by one [2048, 2048] matrix with oneDNN's GEMM,
// which packs both. Owns the operands and a result per thread. Thread-compatible.
class GemmSpeed {
 public:
  // Returns the floating-point operations per second of all threads, with operands of type kF32 or
  // kBF16 and f32 sums. The first call allocates the operands.
  // Errors: kUnimplemented if the library is missing or has no such product for this processor.
  absl::StatusOr<double> Measure(DType operands, int threads);

 private:
  AlignedBuffer a_, b_, c_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_GEMM_H_
