// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/tensor_stats.h"

#include <gtest/gtest.h>
#include "runtime/base/bf16.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace plumb {
namespace {

std::vector<float> Numbers(int64_t n) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    x.push_back(static_cast<float>(std::sin(static_cast<double>(i) * 0.7) * 3 + 0.5));
  }
  return x;
}

TensorStats Naive(const std::vector<float>& x) {
  TensorStats stats;
  for (const float e : x) {
    if (!std::isfinite(e)) {
      ++stats.nonfinite;
      continue;
    }
    ++stats.count;
    stats.sum += static_cast<double>(e);
    stats.sum_squares += static_cast<double>(e) * static_cast<double>(e);
    stats.max_abs = std::max(stats.max_abs, std::abs(e));
  }
  return stats;
}

void ExpectEqual(const TensorStats& got, const TensorStats& want) {
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.nonfinite, want.nonfinite);
  EXPECT_EQ(got.max_abs, want.max_abs);
  EXPECT_NEAR(got.Mean(), want.Mean(), 1e-12 * (1 + std::abs(want.Mean())));
  EXPECT_NEAR(got.Rms(), want.Rms(), 1e-12 * (1 + want.Rms()));
}

TEST(TensorStatsTest, EqualsALoopForAnySize) {
  for (const int64_t n : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 100, 32768, 32769, 100000}) {
    SCOPED_TRACE(n);
    const std::vector<float> x = Numbers(n);
    ExpectEqual(ComputeStats(x.data(), n, 1), Naive(x));
  }
  EXPECT_EQ(TensorStats().Rms(), 0);
  EXPECT_EQ(TensorStats().Mean(), 0);
}

TEST(TensorStatsTest, CountsEveryElement) {
  for (size_t at = 0; at < 40; ++at) {
    std::vector<float> x(40, 0.0f);
    x[at] = -5;
    const TensorStats stats = ComputeStats(x.data(), 40, 1);
    EXPECT_EQ(stats.max_abs, 5) << at;
    EXPECT_EQ(stats.sum, -5) << at;
    EXPECT_EQ(stats.sum_squares, 25) << at;
  }
}

TEST(TensorStatsTest, CountsAndSkipsNonFiniteValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const size_t n : {5, 40, 70000}) {
    for (const size_t at : {size_t{0}, n / 2, n - 1}) {
      std::vector<float> x = Numbers(static_cast<int64_t>(n));
      x[at] = kNaN;
      x[(at + 1) % n] = -kInfinity;
      const TensorStats stats = ComputeStats(x.data(), static_cast<int64_t>(n), 1);
      EXPECT_EQ(stats.nonfinite, 2);
      ExpectEqual(stats, Naive(x));
    }
  }
}

TEST(TensorStatsTest, TheLargestFloatsDoNotOverflow) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> x(50000, -kMax);
  const TensorStats stats = ComputeStats(x.data(), 50000, 1);
  EXPECT_EQ(stats.nonfinite, 0);
  EXPECT_EQ(stats.max_abs, kMax);
  EXPECT_NEAR(stats.Rms() / static_cast<double>(kMax), 1, 1e-9);
}

TEST(TensorStatsTest, DoesNotDependOnTheNumberOfThreads) {
  const int64_t n = 3000000;  // more than one wave of parts
  const std::vector<float> x = Numbers(n);
  const TensorStats one = ComputeStats(x.data(), n, 1);
  ExpectEqual(one, Naive(x));
  for (const int threads : {2, 3, 8}) {
    const TensorStats more = ComputeStats(x.data(), n, threads);
    EXPECT_EQ(more.sum, one.sum);
    EXPECT_EQ(more.sum_squares, one.sum_squares);
    EXPECT_EQ(more.max_abs, one.max_abs);
  }
}

TEST(TensorStatsTest, Bf16MatchesTheValuesInF32) {
  constexpr uint16_t kInfinity = 0x7f80, kNaN = 0xffc0;
  for (const size_t n : {1, 5, 40, 70000}) {
    std::vector<uint16_t> bits;
    std::vector<float> x;
    const auto add = [&](uint16_t each) {
      bits.push_back(each);
      x.push_back(FloatFromBf16(each));
    };
    for (const float value : Numbers(static_cast<int64_t>(n))) add(Bf16FromFloat(value));
    ExpectEqual(ComputeStats(bits.data(), static_cast<int64_t>(bits.size()), 2), Naive(x));
    add(kNaN);
    add(kInfinity);
    const TensorStats stats = ComputeStats(bits.data(), static_cast<int64_t>(bits.size()), 2);
    EXPECT_EQ(stats.nonfinite, 2);
    ExpectEqual(stats, Naive(x));
  }
}

TEST(TensorStatsTest, SplitFloatsMatchF32BitForBit) {
  for (const int64_t n : {1, 5, 40, 32769, 70000, 2500001}) {
    std::vector<float> x = Numbers(n);
    for (const bool finite : {true, false}) {
      if (!finite) x[static_cast<size_t>(n / 2)] = std::numeric_limits<float>::quiet_NaN();
      std::vector<uint16_t> high(x.size()), low(x.size());
      SplitFloats(x.data(), n, 1, {high.data(), low.data()});
      const TensorStats want = ComputeStats(x.data(), n, 1);
      const TensorStats got = ComputeStats(SplitF32{high.data(), low.data()}, n, 3);
      EXPECT_EQ(got.count, want.count) << n;
      EXPECT_EQ(got.nonfinite, want.nonfinite) << n;
      EXPECT_EQ(got.sum, want.sum) << n;
      EXPECT_EQ(got.sum_squares, want.sum_squares) << n;
      EXPECT_EQ(got.max_abs, want.max_abs) << n;
    }
  }
}

TEST(TensorStatsTest, AddsUpParts) {
  const std::vector<float> x = Numbers(1000);
  TensorStats stats = ComputeStats(x.data(), 300, 1);
  stats.Add(ComputeStats(x.data() + 300, 700, 1));
  ExpectEqual(stats, Naive(x));
}

}  // namespace
}  // namespace plumb
