// SPDX-License-Identifier: Apache-2.0
// Column sums on one thread, for gradients of embeddings and experts, and for sums of tasks.
// Stateless.
#ifndef PLUMB_RUNTIME_OPS_SUM_ROWS_H_
#define PLUMB_RUNTIME_OPS_SUM_ROWS_H_

#include <cstdint>

#include "runtime/base/tensor_type.h"

namespace plumb {

// Rows of `n` elements, `stride` elements apart; rows, n >= 1. x is of the selected dtype.
struct SumRowsFns {
  // y[j] = sum over i < rows of x[i * stride + j], in the order of i.
  void (*sum)(const void* x, int64_t rows, int64_t n, int64_t stride, float* y);
  // y[j] += the same, one after the other.
  void (*add)(const void* x, int64_t rows, int64_t n, int64_t stride, float* y);
};
SumRowsFns SelectSumRows(DType dtype);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_SUM_ROWS_H_
