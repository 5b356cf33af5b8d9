// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemv/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/rng.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

struct QuantizedMatrix {
  std::vector<int8_t> values;
  std::vector<float> scales;
};

QuantizedMatrix Quantize(const std::vector<float>& from, int64_t rows, int threads = 1) {
  const int64_t width = static_cast<int64_t>(from.size()) / rows;
  const Shape matrix = {rows, width};
  QuantizedMatrix to{
      std::vector<int8_t>(static_cast<size_t>(Int8Elements(matrix).num_elements()), 99),
      std::vector<float>(static_cast<size_t>(Int8Scales(matrix).num_elements()), 99)};
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

TEST(QuantizeTest, ErrorIsAtMostHalfAStep) {
  ForEachSimdTarget([](const std::string& target) {
    for (const int64_t width : {1, 7, 16, 63, 64, 65, 128, 300, 768}) {
      const int64_t rows = 21, groups = Int8Groups(width);
      const std::vector<float> from = Draw(rows * width);
      const QuantizedMatrix to = Quantize(from, rows);
      std::vector<float> back(static_cast<size_t>(width));
      for (int64_t row = 0; row < rows; ++row) {
        ReadInt8Row(to.values.data(), to.scales.data(), row, width, back.data());
        for (int64_t i = 0; i < width; ++i) {
          const float scale = to.scales[static_cast<size_t>(Int8ScaleAt(row, i, groups))];
          const int8_t value = to.values[static_cast<size_t>(Int8ElementAt(row, i, groups))];
          EXPECT_EQ(back[static_cast<size_t>(i)], static_cast<float>(value) * scale);
          ASSERT_LE(
              std::fabs(back[static_cast<size_t>(i)] - from[static_cast<size_t>(row * width + i)]),
              0.5001f * scale)
              << row << ", " << i << " of width " << width << " on " << target;
        }
      }
    }
  });
}

TEST(QuantizeTest, AScaleIsTheLargestMagnitudeOfItsGroup) {
  std::vector<float> row(128, 0.25f);
  row[3] = -12.7f;
  row[100] = 2.54f;
  const QuantizedMatrix to = Quantize(row, 1);
  EXPECT_FLOAT_EQ(to.scales[Int8ScaleAt(0, 3, 2)], 0.1f);
  EXPECT_FLOAT_EQ(to.scales[Int8ScaleAt(0, 100, 2)], 0.02f);
  EXPECT_EQ(to.values[Int8ElementAt(0, 3, 2)], -127);
  EXPECT_EQ(to.values[Int8ElementAt(0, 100, 2)], 127);
  EXPECT_EQ(to.values[Int8ElementAt(0, 0, 2)], 2);  // 2.5 steps, rounded to even
}

// Every element has its own place, in the order of quantize.h. The rest is zeros.
TEST(QuantizeTest, TilesInterleaveSixteenRows) {
  const int64_t rows = 18, width = 70, groups = 2;
  EXPECT_EQ(Int8Elements({rows, width}), I8({2, 2, 1024}));
  EXPECT_EQ(Int8Scales({rows, width}), F32({2, 2, 16}));
  EXPECT_EQ(Int8ElementAt(0, 1, groups), 2);
  EXPECT_EQ(Int8ElementAt(0, 2, groups), 1);
  EXPECT_EQ(Int8ElementAt(1, 0, groups), 4);
  EXPECT_EQ(Int8ElementAt(0, 4, groups), 64);
  EXPECT_EQ(Int8ElementAt(0, 64, groups), 1024);
  EXPECT_EQ(Int8ElementAt(16, 0, groups), 2048);
  const QuantizedMatrix to = Quantize(std::vector<float>(rows * width, 3.0f), rows);
  std::vector<int8_t> expected(to.values.size(), 0);
  std::vector<float> scales(to.scales.size(), 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      ++expected[static_cast<size_t>(Int8ElementAt(row, i, groups))];
      scales[static_cast<size_t>(Int8ScaleAt(row, i, groups))] = 3.0f / 127;
    }
  }
  for (int8_t& value : expected) value = static_cast<int8_t>(127 * value);
  EXPECT_EQ(to.values, expected);
  EXPECT_EQ(to.scales, scales);
}

TEST(QuantizeTest, Bf16ErrorIsAtMostHalfAStep) {
  ForEachSimdTarget([](const std::string& target) {
    for (const int64_t width : {1, 7, 64, 65, 300}) {
      const int64_t rows = 3, groups = Int8Groups(width), whole = groups * kInt8Group;
      const std::vector<float> from = Draw(rows * width);
      std::vector<int16_t> to(static_cast<size_t>(rows * whole), 99);
      std::vector<float> scales(static_cast<size_t>(rows * groups), 99);
      QuantizeInt16(from.data(), rows, width, to.data(), scales.data(), rows);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < whole; ++i) {
          const double scale = scales[static_cast<size_t>(i / kInt8Group * rows + r)];
          const double back = to[static_cast<size_t>(r * whole + i)] * scale;
          const double was = i < width ? from[static_cast<size_t>(r * width + i)] : 0;
          ASSERT_LE(std::fabs(back - was), 0.501 * scale)
              << r << ", " << i << " of width " << width << " on " << target;
        }
      }
    }
  });
}

TEST(QuantizeTest, KeepsZerosAndNonFiniteValues) {
  ForEachSimdTarget([](const std::string& target) {
    std::vector<float> from(4 * 64, 0.0f);
    from[64 + 5] = std::numeric_limits<float>::quiet_NaN();
    from[64 + 6] = 1;
    from[128 + 63] = -std::numeric_limits<float>::infinity();
    from[192] = 1e-44f;  // its scale would underflow to 0
    const QuantizedMatrix to = Quantize(from, 2);
    const auto scale = [&](int64_t row, int64_t i) { return to.scales[Int8ScaleAt(row, i, 2)]; };
    EXPECT_EQ(scale(0, 0), 0) << target;
    EXPECT_TRUE(std::isnan(scale(0, 64))) << target;
    EXPECT_TRUE(std::isnan(scale(1, 0))) << target;
    EXPECT_EQ(scale(1, 64), 0) << target;
    for (const int8_t value : to.values) ASSERT_EQ(value, 0) << target;
  });
}

TEST(QuantizeTest, ThreadsChangeNoBit) {
  const std::vector<float> from = Draw(500 * 640);
  const QuantizedMatrix one = Quantize(from, 500, 1), four = Quantize(from, 500, 4);
  EXPECT_EQ(one.values, four.values);
  EXPECT_EQ(one.scales, four.scales);
}

}  // namespace
}  // namespace plumb
