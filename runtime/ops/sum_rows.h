// SPDX-License-Identifier: Apache-2.0
// Column sums on one thread, for gradients of embeddings and experts, and for sums of tasks.
// Stateless.
#ifndef PLUMB_RUNTIME_OPS_SUM_ROWS_H_
#define PLUMB_RUNTIME_OPS_SUM_ROWS_H_

#include <cstdint>

#include "runtime/base/tensor_type.h"

namespace plumb {

// Functions on rows of `n` elements, `stride` elements apart, of the selected dtype; rows, n >= 1.
struct SumRowsFns {
  // Sets y[j] to the sum over i < rows of x[i * stride + j], in the order of i.
  void (*sum)(const void* x, int64_t rows, int64_t n, int64_t stride, float* y);
  // Adds these terms to y[j], one after the other.
  void (*add)(const void* x, int64_t rows, int64_t n, int64_t stride, float* y);
};
SumRowsFns SelectSumRows(DType dtype);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_SUM_ROWS_H_
