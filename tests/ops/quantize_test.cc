#include "runtime/ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/rng.h"
#include "tests/ops/simd_targets.h"

namespace plumb {
namespace {

struct Int8Matrix {
  std::vector<int8_t> values;
  std::vector<float> scales;
};

Int8Matrix Quantize(const std::vector<float>& from, int64_t rows, int threads = 1) {
  const int64_t width = static_cast<int64_t>(from.size()) / rows;
  Int8Matrix to{std::vector<int8_t>(from.size(), 99),
                std::vector<float>(static_cast<size_t>(rows * Int8Groups(width)), 99)};
  QuantizeInt8(from.data(), rows, width, threads, to.values.data(), to.scales.data());
  return to;
}

std::vector<float> Draw(int64_t n) {
  const RngStream draws(5, "quantize");
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(draws.Normal(i) * std::exp(draws.Normal(i + n))));
  }
  return values;
}

TEST(QuantizeTest, NoElementIsOffByMoreThanHalfAStep) {
  ForEachSimdTarget([](const std::string& target) {
    for (const int64_t width : {1, 7, 16, 63, 64, 65, 128, 300, 768}) {
      const int64_t rows = 9, group = Int8GroupSize(width);
      const std::vector<float> from = Draw(rows * width);
      const Int8Matrix to = Quantize(from, rows);
      std::vector<float> back(from.size());
      DequantizeInt8(to.values.data(), to.scales.data(), rows, width, back.data());
      for (size_t i = 0; i < from.size(); ++i) {
        const float scale = to.scales[i / static_cast<size_t>(group)];
        EXPECT_EQ(back[i], static_cast<float>(to.values[i]) * scale);
        ASSERT_LE(std::fabs(back[i] - from[i]), 0.5001f * scale)
            << "element " << i << " of width " << width << " on " << target;
      }
    }
  });
}

TEST(QuantizeTest, AScaleIsTheLargestMagnitudeOfItsGroup) {
  std::vector<float> row(128, 0.25f);
  row[3] = -12.7f;
  row[100] = 2.54f;
  const Int8Matrix to = Quantize(row, 1);
  ASSERT_EQ(to.scales.size(), 2u);
  EXPECT_FLOAT_EQ(to.scales[0], 0.1f);
  EXPECT_FLOAT_EQ(to.scales[1], 0.02f);
  EXPECT_EQ(to.values[3], -127);
  EXPECT_EQ(to.values[100], 127);
  EXPECT_EQ(to.values[0], 2);  // 2.5 steps: to even
}

TEST(QuantizeTest, RowsThatDoNotDivideIntoGroupsHaveOneScale) {
  EXPECT_EQ(Int8Groups(768), 12);
  EXPECT_EQ(Int8Groups(100), 1);
  EXPECT_EQ(Int8GroupSize(100), 100);
  const Int8Matrix to = Quantize(Draw(3 * 100), 3);
  EXPECT_EQ(to.scales.size(), 3u);
}

TEST(QuantizeTest, ZerosStayZerosAndWhatIsNotFiniteIsNotHidden) {
  ForEachSimdTarget([](const std::string& target) {
    std::vector<float> from(4 * 64, 0.0f);
    from[64 + 5] = std::numeric_limits<float>::quiet_NaN();
    from[64 + 6] = 1;
    from[128 + 63] = -std::numeric_limits<float>::infinity();
    from[192] = 1e-44f;  // its scale would be 0
    const Int8Matrix to = Quantize(from, 2);
    EXPECT_EQ(to.scales[0], 0) << target;
    EXPECT_TRUE(std::isnan(to.scales[1])) << target;
    EXPECT_TRUE(std::isnan(to.scales[2])) << target;
    EXPECT_EQ(to.scales[3], 0) << target;
    for (const int8_t value : to.values) ASSERT_EQ(value, 0) << target;
  });
}

TEST(QuantizeTest, ThreadsChangeNothing) {
  const std::vector<float> from = Draw(500 * 640);
  const Int8Matrix one = Quantize(from, 500, 1), four = Quantize(from, 500, 4);
  EXPECT_EQ(one.values, four.values);
  EXPECT_EQ(one.scales, four.scales);
}

}  // namespace
}  // namespace plumb
