// Column sums, on one thread: what sum_rows does to each block of rows, and other reductions to
// their partial sums. Stateless.
#ifndef PLUMB_RUNTIME_OPS_SUM_ROWS_H_
#define PLUMB_RUNTIME_OPS_SUM_ROWS_H_

#include <cstdint>

namespace plumb {

// y[j] = sum over i < rows of x[i * n + j], in the order of i; rows, n >= 1.
using SumRowsFn = void (*)(const float* x, int64_t rows, int64_t n, float* y);
SumRowsFn SelectSumRows();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_SUM_ROWS_H_
