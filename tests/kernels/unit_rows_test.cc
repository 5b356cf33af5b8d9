// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

TEST(UnitRowsTest, NormalizesRowsAndColumns) {
  for (const int64_t rows : {1, 5, 70}) {
    for (const int64_t columns : {1, 3, 64, 130}) {
      const RngStream stream(3, "rows");
      const size_t size = static_cast<size_t>(rows * columns);
      std::vector<float> start(size);
      for (size_t i = 0; i < size; ++i) start[i] = static_cast<float>(stream.Normal(i));
      for (int64_t j = 0; j < columns && rows > 1; ++j) start[static_cast<size_t>(j)] = 0;
      for (const bool by_column : {false, true}) {
        std::vector<float> got = start;
        for (const int threads : {1, 4}) {
          got = start;
          const MatrixInPlace matrix{got.data(), {nullptr, nullptr}, rows, columns};
          by_column ? NormalizeColumns(matrix, threads) : NormalizeRows(matrix, threads);
        }
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            double square = 0;
            for (int64_t k = 0; k < (by_column ? rows : columns); ++k) {
              const int64_t at = by_column ? k * columns + c : r * columns + k;
              square += std::pow(static_cast<double>(start[static_cast<size_t>(at)]), 2);
            }
            const size_t at = static_cast<size_t>(r * columns + c);
            const double want =
                square == 0 ? 0 : static_cast<double>(start[at]) / std::sqrt(square);
            ASSERT_NEAR(got[at], want, 1e-7);
          }
        }
        const AlignedBuffer storage(AlignUp(rows * columns * 4) + kAlignment);
        const SplitF32 split = SplitF32In(storage.as<float>(), rows * columns);
        SplitFloats(start.data(), rows * columns, 1, split);
        const MatrixInPlace matrix{nullptr, split, rows, columns};
        by_column ? NormalizeColumns(matrix, 1) : NormalizeRows(matrix, 1);
        std::vector<float> joined(size);
        JoinFloats(split, rows * columns, 1, joined.data());
        EXPECT_EQ(joined, got) << "split, to the same bits";
      }
    }
  }
}

}  // namespace
}  // namespace plumb
