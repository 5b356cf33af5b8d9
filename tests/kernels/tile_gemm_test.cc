// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/tile_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/simd/cpu_features.h"
#include "tests/kernels/draw.h"

namespace plumb {
namespace {

// A product of random operands, which are views into larger matrices.
struct Product {
  bool ta, tb, accumulate;
  int64_t m, n, k, pad;

  int64_t lda() const { return (ta ? m : k) + pad; }
  int64_t ldb() const { return (tb ? k : n) + pad; }
  int64_t ldc() const { return n + pad; }
};

std::vector<uint16_t> DrawBf16(int64_t n, const char* name) {
  std::vector<uint16_t> to;
  for (const float x : Draw(n, name)) to.push_back(Bf16FromFloat(x));
  return to;
}

class TileGemmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!UsesAmx()) GTEST_SKIP() << "this processor has no AMX";
  }

  // Computes rows [row, row + p.m) and columns [column, column + p.n) of the product of a_ and b_.
  std::vector<float> Run(const Product& p, int64_t row = 0, int64_t column = 0) {
    std::vector<float> c(static_cast<size_t>(p.m * p.ldc()), kBefore);
    AlignedBuffer scratch(TileGemmScratch(p.m, p.n, p.k));
    std::fill_n(scratch.as<uint8_t>(), TileGemmScratch(p.m, p.n, p.k), uint8_t{0x7f});
    TileGemm({p.ta, p.tb, p.m, p.n, p.k, a_.data() + (p.ta ? row : row * lda_), lda_,
              b_.data() + (p.tb ? column * ldb_ : column), ldb_, p.accumulate, c.data(), p.ldc()},
             scratch.data());
    return c;
  }

  void DrawOperands(const Product& p) {
    lda_ = p.lda();
    ldb_ = p.ldb();
    a_ = DrawBf16(lda_ * (p.ta ? p.k : p.m), "a");
    b_ = DrawBf16(ldb_ * (p.tb ? p.n : p.k), "b");
  }

  static constexpr float kBefore = 7;  // value of c before
  std::vector<uint16_t> a_, b_;
  int64_t lda_ = 0, ldb_ = 0;
};

TEST_F(TileGemmTest, EqualsTheNaiveProduct) {
  const RngStream draws(3, "shapes");
  for (int64_t trial = 0; trial < 160; ++trial) {
    const auto draw = [&](int64_t i, int64_t max) {
      return 1 + static_cast<int64_t>(draws.Uniform(8 * trial + i) * static_cast<double>(max));
    };
    // Some sizes exceed what is packed at a time.
    Product p{draw(0, 2) == 1, draw(1, 2) == 1, draw(2, 2) == 1, draw(3, 70),
              draw(4, 70),     draw(5, 140),    draw(6, 4) - 1};
    if (trial % 9 == 0) p.m += 500;
    if (trial % 9 == 1) p.n += 760;
    if (trial % 9 == 2) p.k += 700;
    SCOPED_TRACE(absl::StrCat(p.m, "x", p.n, "x", p.k, p.ta ? " ta" : "", p.tb ? " tb" : ""));
    DrawOperands(p);
    const std::vector<float> c = Run(p);
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.ldc(); ++j) {
        double sum = p.accumulate || j >= p.n ? kBefore : 0, magnitude = 1;
        for (int64_t l = 0; j < p.n && l < p.k; ++l) {
          const double x =
              static_cast<double>(FloatFromBf16(a_[p.ta ? l * lda_ + i : i * lda_ + l])) *
              FloatFromBf16(b_[p.tb ? j * ldb_ + l : l * ldb_ + j]);
          sum += x;
          magnitude += std::abs(x);
        }
        ASSERT_NEAR(c[static_cast<size_t>(i * p.ldc() + j)], sum, 1e-6 * magnitude)
            << i << ", " << j;
      }
    }
  }
}

// So results depend neither on the partition of a product nor on the number of threads.
TEST_F(TileGemmTest, BitsDoNotDependOnThePartition) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Product whole{ta, tb, false, 150, 90, 900, 0};
      DrawOperands(whole);
      const std::vector<float> c = Run(whole);
      Product part = whole;
      part.m = 37;
      part.n = 21;
      const int64_t row = 50, column = 33;
      const std::vector<float> d = Run(part, row, column);
      for (int64_t i = 0; i < part.m; ++i) {
        EXPECT_EQ(std::memcmp(&d[static_cast<size_t>(i * part.ldc())],
                              &c[static_cast<size_t>((row + i) * whole.ldc() + column)],
                              static_cast<size_t>(part.n) * sizeof(float)),
                  0)
            << "row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace plumb
