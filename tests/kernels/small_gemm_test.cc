// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/small_gemm.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/draw.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

// The operands are views into larger matrices, whose other elements must not change.
TEST(SmallGemmTest, ReadsLeadingDimensions) {
  const int64_t m = 7, n = 27, k = 19, pad = 3;
  const std::vector<float> a = Draw(40 * 40, "a"), b = Draw(40 * 40, "b");
  const std::vector<float> start = Draw(m * (n + 2), "start");
  ForEachSimdTarget([&](const std::string& target) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
        const int64_t start_ld = ta ? 0 : n + 2;  // a bias, or a row for each row
        std::vector<float> c(static_cast<size_t>(m * ldc), -77.0f);
        std::vector<float> scratch(static_cast<size_t>(SmallGemmScratch(k)));
        SelectSmallGemm(ta, tb)(
            {ta, tb, m, n, k, a.data(), lda, b.data(), ldb, false, c.data(), ldc},
            {start.data(), start_ld}, scratch.data());
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < ldc; ++j) {
            double expected = -77;
            if (j < n) {
              expected = start[i * start_ld + j];
              for (int64_t l = 0; l < k; ++l) {
                expected += static_cast<double>(a[ta ? l * lda + i : i * lda + l]) *
                            static_cast<double>(b[tb ? j * ldb + l : l * ldb + j]);
              }
            }
            ASSERT_NEAR(c[i * ldc + j], expected, 1e-5)
                << i << ", " << j << (ta ? " ta" : "") << (tb ? " tb" : "") << " on " << target;
          }
        }
      }
    }
  });
}

TEST(SmallGemmTest, RowsDoNotDependOnTheirNumber) {
  const int64_t m = 23, n = 31, k = 40;
  const std::vector<float> a = Draw(m * k, "a"), b = Draw(n * k, "b");
  ForEachSimdTarget([&](const std::string& target) {
    const SmallGemmFn multiply = SelectSmallGemm(false, true);
    std::vector<float> scratch(static_cast<size_t>(SmallGemmScratch(k)));
    std::vector<float> whole(m * n), row(n);
    multiply({false, true, m, n, k, a.data(), k, b.data(), k, false, whole.data(), n}, {},
             scratch.data());
    for (int64_t i = 0; i < m; ++i) {
      multiply({false, true, 1, n, k, a.data() + i * k, k, b.data(), k, false, row.data(), n}, {},
               scratch.data());
      EXPECT_EQ(std::memcmp(row.data(), &whole[i * n], n * sizeof(float)), 0)
          << "row " << i << " on " << target;
    }
  });
}

// Accumulating a b in two parts of k gives the bits of the whole product.
TEST(SmallGemmTest, AccumulatesPartialSums) {
  const int64_t m = 9, n = 35, k = 64, half = 24;
  const std::vector<float> a = Draw(m * k, "a"), b = Draw(n * k, "b"), bias = Draw(n, "bias");
  ForEachSimdTarget([&](const std::string& target) {
    const SmallGemmFn multiply = SelectSmallGemm(false, false);
    std::vector<float> scratch(static_cast<size_t>(SmallGemmScratch(k)));
    std::vector<float> whole(m * n), parts(m * n);
    multiply({false, false, m, n, k, a.data(), k, b.data(), n, false, whole.data(), n},
             {bias.data(), 0}, scratch.data());
    multiply({false, false, m, n, half, a.data(), k, b.data(), n, false, parts.data(), n},
             {bias.data(), 0}, scratch.data());
    multiply({false, false, m, n, k - half, a.data() + half, k, b.data() + half * n, n, true,
              parts.data(), n},
             {}, scratch.data());
    EXPECT_EQ(parts, whole) << target;
  });
}

}  // namespace
}  // namespace plumb
