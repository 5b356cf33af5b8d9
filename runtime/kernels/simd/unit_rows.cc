// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"

namespace plumb {
namespace {

float Get(const MatrixInPlace& matrix, int64_t i) {
  return matrix.floats != nullptr ? matrix.floats[i]
                                  : JoinFloat(matrix.split.high[i], matrix.split.low[i]);
}

void Put(const MatrixInPlace& matrix, int64_t i, float value) {
  if (matrix.floats != nullptr) {
    matrix.floats[i] = value;
  } else {
    SplitFloat(value, &matrix.split.high[i], &matrix.split.low[i]);
  }
}

double InverseLength(double square) { return square > 0 ? 1 / std::sqrt(square) : 1; }

void NormalizeRow(const MatrixInPlace& matrix, int64_t row) {
  const int64_t begin = row * matrix.columns, end = begin + matrix.columns;
  double square = 0;
  for (int64_t i = begin; i < end; ++i) {
    const double value = static_cast<double>(Get(matrix, i));
    square += value * value;
  }
  const double factor = InverseLength(square);
  for (int64_t i = begin; i < end; ++i) {
    Put(matrix, i, static_cast<float>(static_cast<double>(Get(matrix, i)) * factor));
  }
}

// Number of columns that are summed together, so that rows are read in whole cache lines.
constexpr int64_t kColumns = 64;

void NormalizeSomeColumns(const MatrixInPlace& matrix, int64_t first, int64_t count) {
  std::array<double, kColumns> factors{};
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t j = 0; j < count; ++j) {
      const double value = static_cast<double>(Get(matrix, row * matrix.columns + first + j));
      factors[static_cast<size_t>(j)] += value * value;
    }
  }
  for (double& factor : factors) factor = InverseLength(factor);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t j = 0; j < count; ++j) {
      const int64_t i = row * matrix.columns + first + j;
      Put(matrix, i,
          static_cast<float>(static_cast<double>(Get(matrix, i)) *
                             factors[static_cast<size_t>(j)]));
    }
  }
}

}  // namespace

void NormalizeRows(const MatrixInPlace& matrix, int threads) {
  ParallelFor(matrix.rows, threads, [&](int64_t row) { NormalizeRow(matrix, row); });
}

void NormalizeColumns(const MatrixInPlace& matrix, int threads) {
  ParallelFor(CeilDiv(matrix.columns, kColumns), threads, [&](int64_t task) {
    const int64_t first = task * kColumns;
    NormalizeSomeColumns(matrix, first, std::min(kColumns, matrix.columns - first));
  });
}

}  // namespace plumb
