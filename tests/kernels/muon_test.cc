// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/rng.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

std::vector<float> NormalValues(int64_t n, const char* purpose) {
  const RngStream stream(7, purpose);
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.Normal(i));
  return values;
}

// Sizes of one element, of partial vectors, and of more than a thread's part.
constexpr int64_t kSizes[] = {1, 7, 16, 33, 70001};

TEST(MuonTest, MomentumFollowsItsFormula) {
  ForEachSimdTarget([](const std::string& target) {
    for (const int64_t n : kSizes) {
      for (const bool nesterov : {false, true}) {
        const MuonMomentum momentum{0.25f, 0.9f, nesterov};
        const std::vector<float> grad = NormalValues(n, "grad"), start = NormalValues(n, "m");
        std::vector<float> one = start, one_direction(grad.size());
        UpdateMomentum(momentum, grad.data(), n, 1, one.data(), one_direction.data());
        std::vector<float> many = start, many_direction(grad.size());
        UpdateMomentum(momentum, grad.data(), n, 4, many.data(), many_direction.data());
        EXPECT_EQ(one, many);
        EXPECT_EQ(one_direction, many_direction);
        for (size_t i = 0; i < grad.size(); ++i) {
          const double g = 0.25 * static_cast<double>(grad[i]), beta = 0.9f;
          const double m = beta * static_cast<double>(start[i]) + (1 - beta) * g;
          ASSERT_NEAR(one[i], m, 1e-6 * (1 + std::fabs(m))) << target;
          const double direction = nesterov ? beta * m + (1 - beta) * g : m;
          ASSERT_NEAR(one_direction[i], direction, 1e-6 * (1 + std::fabs(m))) << target;
        }
      }
    }
  });
}

TEST(MuonTest, AStepIsTheSameOverSplitParametersToTheBit) {
  ForEachSimdTarget([](const std::string& target) {
    for (const int64_t n : kSizes) {
      const std::vector<float> direction = NormalValues(n, "direction"),
                               start = NormalValues(n, "p");
      for (const int threads : {1, 4}) {
        std::vector<float> p = start;
        StepAlong(direction.data(), 0.99f, 0.02f, n, threads, p.data());
        for (size_t i = 0; i < p.size(); ++i) {
          const double want = static_cast<double>(0.99f) * static_cast<double>(start[i]) -
                              static_cast<double>(0.02f) * static_cast<double>(direction[i]);
          ASSERT_NEAR(p[i], want, 1e-6 * (1 + std::fabs(want))) << target;
        }
        const AlignedBuffer storage(AlignUp(n * 4) + kAlignment);
        const SplitF32 split = SplitF32In(storage.as<float>(), n);
        SplitFloats(start.data(), n, 1, split);
        StepAlong(direction.data(), 0.99f, 0.02f, n, threads, split);
        std::vector<float> joined(start.size());
        JoinFloats(split, n, 1, joined.data());
        EXPECT_EQ(joined, p) << target;
      }
    }
  });
}

TEST(MuonTest, ScaleMultipliesEveryElement) {
  for (const int64_t n : kSizes) {
    const std::vector<float> start = NormalValues(n, "x");
    std::vector<float> x = start;
    Scale(0.5f, n, 4, x.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], start[i] * 0.5f);
  }
}

}  // namespace
}  // namespace plumb
