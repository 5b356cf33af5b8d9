// Rows and columns of matrices scaled to length 1. Stateless; results do not depend on the number
// of threads.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_UNIT_ROWS_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_UNIT_ROWS_H_

#include <cstdint>

#include "runtime/kernels/simd/split_f32.h"

namespace plumb {

// A matrix [rows, columns] as floats, or split where `floats` is null.
struct MatrixInPlace {
  float* floats;
  SplitF32 split;
  int64_t rows, columns;
};

// Every row (column) is divided by its length, a sum in double; one of zeros stays.
void NormalizeRows(const MatrixInPlace& matrix, int threads);
void NormalizeColumns(const MatrixInPlace& matrix, int threads);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_UNIT_ROWS_H_
