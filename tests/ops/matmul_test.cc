// The paths of matmul that the cases of ops_test cannot tell apart.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/ops/matmul_finish.h"
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

// Whether instructions of the processor round or ours: every finish that ends in bf16 rounds alike,
// in whole vectors and the last, partial one.
TEST(MatmulFinishTest, RoundsToBf16AsEverythingElse) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> sums = {0.0f,         -0.0f,           1.0f,     1.00390625f,   1.01171875f,
                             -1.00390625f, 3.3895e38f,      -3.4e38f, kInfinity,     -kInfinity,
                             NAN,          1.17549435e-38f, 65536.5f, 1.0039063692f, 1e-30f};
  const RngStream draws(9, "finish");
  while (sums.size() < 2 * 37) sums.push_back(static_cast<float>(draws.Normal(sums.size())));
  std::vector<uint16_t> ones(sums.size(), Bf16FromFloat(1.0f)), zeros(sums.size(), 0);
  ForEachSimdTarget([&](const std::string& target) {
    for (const FinishKind kind : {FinishKind::kStore, FinishKind::kAdd, FinishKind::kMul}) {
      std::vector<uint16_t> out(sums.size() + 1, 77);
      FinishArgs f{2, 37, 0, sums.data(), 37, nullptr, nullptr, out.data(), 37};
      f.operand = kind == FinishKind::kMul ? ones.data() : zeros.data();
      SelectFinish(kind, ActivationKind::kRelu, DType::kBF16)(f);
      EXPECT_EQ(out.back(), 77);
      for (size_t i = 0; i < sums.size(); ++i) {
        if (kind == FinishKind::kAdd && sums[i] == 0) continue;  // -0 + 0
        if (std::isnan(sums[i])) {
          EXPECT_TRUE(std::isnan(FloatFromBf16(out[i]))) << target;
        } else {
          EXPECT_EQ(out[i], Bf16FromFloat(sums[i])) << sums[i] << " on " << target;
        }
      }
    }
  });
}

}  // namespace
}  // namespace plumb
