// Single-precision matrix product by oneDNN, on the calling thread alone. Stateless, thread-safe.
//
// Threads are the caller's business: it cuts a product into blocks by shape and calls this for
// each, so that results do not depend on the number of threads (oneDNN promises that only for a
// fixed one). The function rather than the matmul primitive, because a primitive's execution
// allocates six times (in 2.6.3), this once (a buffer for packed operands; none for few rows of A
// by a transposed B), and a primitive is no faster in f32: bench/matmul_benchmark times both.
#ifndef PLUMB_RUNTIME_ONEDNN_SGEMM_H_
#define PLUMB_RUNTIME_ONEDNN_SGEMM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace plumb {

// Row-major C[m,n] = op(A)[m,k] op(B)[k,n] + beta C; leading dimensions in elements; beta 0 or 1.
struct SgemmArgs {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float beta;
  float* c;
  int64_t ldc;
};
absl::Status SgemmOnThisThread(const SgemmArgs& args);

std::string OneDnnVersion();  // "2.6.3"

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_SGEMM_H_
