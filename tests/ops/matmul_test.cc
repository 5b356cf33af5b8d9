// The paths of matmul that the cases of ops_test cannot tell apart.
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/rng.h"
#include "runtime/ops/small_matmul.h"
#include "tests/ops/simd_targets.h"

namespace plumb {
namespace {

std::vector<float> Draw(int64_t n, const char* name) {
  const RngStream draws(4, name);
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(draws.Normal(i)));
  return values;
}

// A view into larger matrices, whose surroundings must stay as they are; every target, every form.
TEST(SmallMatmulTest, HonoursLeadingDimensionsOnEveryTarget) {
  const int64_t m = 7, n = 27, k = 19, pad = 3;
  const std::vector<float> a = Draw(40 * 40, "a"), b = Draw(40 * 40, "b"), bias = Draw(n, "bias");
  ForEachSimdTarget([&](const std::string& target) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
        std::vector<float> c(static_cast<size_t>(m * ldc), -77.0f);
        std::vector<float> scratch(static_cast<size_t>(SmallMatmulScratch(k)));
        SelectSmallMatmul(ta, tb)(
            {m, n, k, a.data(), lda, b.data(), ldb, bias.data(), c.data(), ldc}, scratch.data());
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < ldc; ++j) {
            double expected = -77;
            if (j < n) {
              expected = bias[j];
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

TEST(SmallMatmulTest, RowsDoNotDependOnHowManyThereAre) {
  const int64_t m = 23, n = 31, k = 40;
  const std::vector<float> a = Draw(m * k, "a"), b = Draw(n * k, "b");
  ForEachSimdTarget([&](const std::string& target) {
    const SmallMatmulFn multiply = SelectSmallMatmul(false, true);
    std::vector<float> scratch(static_cast<size_t>(SmallMatmulScratch(k)));
    std::vector<float> whole(m * n), row(n);
    multiply({m, n, k, a.data(), k, b.data(), k, nullptr, whole.data(), n}, scratch.data());
    for (int64_t i = 0; i < m; ++i) {
      multiply({1, n, k, a.data() + i * k, k, b.data(), k, nullptr, row.data(), n}, scratch.data());
      EXPECT_EQ(std::memcmp(row.data(), &whole[i * n], n * sizeof(float)), 0)
          << "row " << i << " on " << target;
    }
  });
}

}  // namespace
}  // namespace plumb
