// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/simd/split_f32.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

std::vector<float> Normals(int64_t n, const char* purpose, uint64_t step = 0) {
  const RngStream stream(7, purpose, step);
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.Normal(i));
  return values;
}

struct State {
  std::vector<float> param, m, v;
};

// Segments of odd lengths with padding between them, and one with more elements than a task.
const std::vector<AdamWSegment> kSegments = {
    {0, 1, 0.1f, 1.0f},
    {16, 33, 0.0f, 0.5f},
    {48, 64, 0.1f, 1.0f},
    {64, 70007, 0.05f, 2.0f},
    {70016, 90000, 0.0f, 1.0f},
    // These belong to other groups, and a part of their learning rate is not scheduled.
    {90000, 90009, 0.2f, 0.0f, false, 1e-3f, 1},
    {90016, 100000, 0.1f, 0.5f, false, 2e-3f, 2},
};
constexpr int64_t kSize = 100000;

struct Step {
  float learning_rate;
  int64_t step;
  std::vector<AdamWGroup> groups;

  operator AdamWStep() const { return {learning_rate, step, groups}; }
};

Step StepNumber(int64_t t) {
  const float scale = 0.25f * static_cast<float>(t);
  return {3e-3f / static_cast<float>(t),
          t,
          {{0.9f, 0.95f, 1e-8f, scale}, {0.8f, 0.99f, 1e-3f, scale}, {0.9f, 0.95f, 1e-8f, 1.0f}}};
}

std::vector<float> GradientAt(int64_t t) {
  std::vector<float> grad = Normals(kSize, "grad", static_cast<uint64_t>(t));
  for (size_t s = 0; s + 1 < kSegments.size(); ++s) {
    for (int64_t i = kSegments[s].end; i < kSegments[s + 1].begin; ++i) {
      grad[static_cast<size_t>(i)] = 0;
    }
  }
  return grad;
}

State Train(int steps, int threads) {
  State state = {Normals(kSize, "param"), std::vector<float>(kSize), std::vector<float>(kSize)};
  for (int64_t t = 1; t <= steps; ++t) {
    const std::vector<float> grad = GradientAt(t);
    AdamWUpdate(kSegments, StepNumber(t),
                {grad.data(), state.param.data(), state.m.data(), state.v.data()}, threads);
  }
  return state;
}

TEST(AdamWTest, FollowsTheAlgorithmStepByStep) {
  constexpr int kSteps = 5;
  const State got = Train(kSteps, 1);

  const std::vector<float> start = Normals(kSize, "param");
  std::vector<std::vector<float>> grads;
  for (int64_t t = 1; t <= kSteps; ++t) grads.push_back(GradientAt(t));
  for (const AdamWSegment& segment : kSegments) {
    for (int64_t i = segment.begin; i < segment.end; ++i) {
      const size_t at = static_cast<size_t>(i);
      double p = static_cast<double>(start[at]), m = 0, v = 0;
      for (int64_t t = 1; t <= kSteps; ++t) {
        const Step step = StepNumber(t);
        const AdamWGroup& group = step.groups[static_cast<size_t>(segment.group)];
        const double b1 = group.beta1, b2 = group.beta2;
        const double lr =
            static_cast<double>(step.learning_rate) * segment.lr_scale + segment.lr_offset;
        const double g =
            static_cast<double>(grads[static_cast<size_t>(t - 1)][at]) * group.grad_scale;
        p *= 1 - lr * segment.weight_decay;
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        p -= lr * (m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + group.eps);
      }
      ASSERT_NEAR(got.param[at], p, 2e-6 * (1 + std::fabs(p))) << "element " << i;
      ASSERT_NEAR(got.m[at], m, 1e-6 * (1 + std::fabs(m))) << "element " << i;
      ASSERT_NEAR(got.v[at], v, 1e-6 * (1 + v)) << "element " << i;
    }
  }
}

TEST(AdamWTest, FirstStepHasTheLearningRate) {
  // Without history m / sqrt(v) is the gradient's sign, whatever its magnitude.
  std::vector<float> grad = {1e-3f, -5.0f, 2.0f}, param = {1, 1, 1}, m(3), v(3);
  Step step = StepNumber(1);
  step.learning_rate = 0.1f;
  step.groups[0].grad_scale = 1;
  AdamWUpdate({{0, 3, 0.0f, 1.0f}}, step, {grad.data(), param.data(), m.data(), v.data()}, 1);
  EXPECT_THAT(param,
              testing::Pointwise(testing::FloatNear(1e-5f), std::vector<float>{0.9f, 1.1f, 0.9f}));
}

// Returns the error of `got` in units of the last place of a float.
double ErrorInUlps(float got, double want) {
  const float rounded = std::fabs(static_cast<float>(want));
  const float next = std::nextafter(rounded, std::numeric_limits<float>::infinity());
  return std::fabs(static_cast<double>(got) - want) / static_cast<double>(next - rounded);
}

TEST(AdamWTest, UpdateIsWithinFourUnitsOfTheLastPlace) {
  // Gradients of all magnitudes whose squares are floats, and a weight of zero, whose new value is
  // the update alone.
  constexpr size_t kCount = 20000;
  const RngStream stream(7, "magnitudes");
  std::vector<float> grad(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const double magnitude = std::pow(10.0, 34 * stream.Uniform(2 * i) - 16);
    grad[i] = static_cast<float>(stream.Uniform(2 * i + 1) < 0.5 ? magnitude : -magnitude);
  }
  const double b1 = 0.9f, b2 = 0.95f, eps = 1e-8f, rate = 3e-3f;
  ForEachSimdTarget([&](const std::string& target) {
    std::vector<float> param(kCount), m(kCount), v(kCount);
    Step step = StepNumber(1);
    step.groups[0].grad_scale = 1;
    AdamWUpdate({{0, kCount, 0.0f, 1.0f}}, step, {grad.data(), param.data(), m.data(), v.data()},
                1);
    double worst = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double root = std::sqrt(static_cast<double>(v[i]) / (1 - b2)) + eps;
      const double want = -rate * (static_cast<double>(m[i]) / (1 - b1)) / root;
      worst = std::max(worst, ErrorInUlps(param[i], want));
    }
    EXPECT_LT(worst, 4) << target;
    RecordProperty("worst_ulps_" + target, std::to_string(worst));
  });
}

TEST(AdamWTest, ExtremeGradientsKeepTheirMeaning) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ForEachSimdTarget([&](const std::string& target) {
    std::vector<float> grad = {0, 3e38f, kInfinity}, param = {1, 1, 1}, m(3), v(3);
    Step step = StepNumber(1);
    step.groups[0].grad_scale = 1;
    AdamWUpdate({{0, 3, 0.0f, 1.0f}}, step, {grad.data(), param.data(), m.data(), v.data()}, 1);
    EXPECT_EQ(param[0], 1) << target;
    EXPECT_TRUE(std::isfinite(param[1])) << target;  // its square is no float
    EXPECT_FALSE(std::isfinite(param[2])) << target;
  });
}

TEST(AdamWTest, DoesNotDependOnTheNumberOfThreads) {
  const State one = Train(3, 1), four = Train(3, 4);
  EXPECT_EQ(one.param, four.param);
  EXPECT_EQ(one.m, four.m);
  EXPECT_EQ(one.v, four.v);
}

TEST(AdamWTest, LeavesGapsBetweenSegmentsUnchanged) {
  const State got = Train(3, 4);
  const std::vector<float> start = Normals(kSize, "param");
  for (size_t s = 0; s + 1 < kSegments.size(); ++s) {
    for (int64_t i = kSegments[s].end; i < kSegments[s + 1].begin; ++i) {
      EXPECT_EQ(got.param[static_cast<size_t>(i)], start[static_cast<size_t>(i)]);
      EXPECT_EQ(got.m[static_cast<size_t>(i)], 0);
    }
  }
}

TEST(AdamWTest, AcceptsNoSegments) {
  AdamWUpdate({}, StepNumber(1), {nullptr, nullptr, nullptr, nullptr}, 4);
}

// Every second segment is split: one of a single element, some of odd lengths, one larger than a
// task.
TEST(AdamWTest, SplitParametersHaveTheSameBits) {
  const std::vector<AdamWSegment> floats = {
      {0, 1, 0.1f, 1.0f},       {32, 49, 0.0f, 0.5f},        {64, 80, 0.1f, 1.0f},
      {96, 70039, 0.05f, 2.0f}, {70048, 100000, 0.0f, 1.0f},
  };
  const auto zero_padding = [&](std::vector<float>* x) {
    for (size_t s = 0; s + 1 < floats.size(); ++s) {
      std::fill(x->begin() + floats[s].end, x->begin() + floats[s + 1].begin, 0.0f);
    }
  };
  std::vector<float> start = Normals(kSize, "param");
  zero_padding(&start);
  ForEachSimdTarget([&](const std::string& target) {
    State want = {start, std::vector<float>(kSize), std::vector<float>(kSize)};
    for (const int threads : {1, 4}) {
      for (const size_t first : {size_t{0}, size_t{1}}) {
        std::vector<AdamWSegment> segments = floats;
        for (size_t s = first; s < segments.size(); s += 2) segments[s].is_split = true;
        State got = want = {start, std::vector<float>(kSize), std::vector<float>(kSize)};
        const AlignedBuffer param(kSize * 4);
        const auto move = [&](bool into) {
          for (const AdamWSegment& segment : segments) {
            const int64_t n = segment.end - segment.begin;
            float* storage = param.as<float>() + segment.begin;
            float* values = got.param.data() + segment.begin;
            if (!segment.is_split) {
              std::copy_n(into ? values : storage, n, into ? storage : values);
            } else if (into) {
              SplitFloats(values, n, 1, SplitF32In(storage, n));
            } else {
              JoinFloats(SplitF32In(storage, n), n, 1, values);
            }
          }
        };
        move(true);
        for (int64_t t = 1; t <= 3; ++t) {
          std::vector<float> grad = Normals(kSize, "grad", static_cast<uint64_t>(t));
          zero_padding(&grad);
          AdamWUpdate(floats, StepNumber(t),
                      {grad.data(), want.param.data(), want.m.data(), want.v.data()}, threads);
          AdamWUpdate(segments, StepNumber(t),
                      {grad.data(), param.as<float>(), got.m.data(), got.v.data()}, threads);
        }
        move(false);
        EXPECT_NE(want.param, start);
        EXPECT_EQ(got.param, want.param) << target;
        EXPECT_EQ(got.m, want.m) << target;
        EXPECT_EQ(got.v, want.v) << target;
        // The padding after the planes of the segment of one element is still zero.
        for (int64_t e = 2; e < 64 && first == 0; ++e) {
          ASSERT_TRUE(e == 32 || param.as<uint16_t>()[e] == 0) << e << " on " << target;
        }
      }
    }
  });
}

// A NaN weight must remain visible in both representations.
TEST(AdamWTest, NaNsStayInSplitWeights) {
  ForEachSimdTarget([](const std::string& target) {
    constexpr int64_t kN = 21;
    const std::vector<float> grad(kN, 1.0f);
    std::vector<float> m(kN), v(kN);
    const AlignedBuffer param(32 * 4);
    const std::vector<float> start(kN, 1.0f);
    const SplitF32 split = SplitF32In(param.as<float>(), kN);
    SplitFloats(start.data(), kN, 1, split);
    m[3] = m[20] = std::numeric_limits<float>::quiet_NaN();
    AdamWUpdate({{0, kN, 0.0f, 1.0f, true}}, StepNumber(1),
                {grad.data(), param.as<float>(), m.data(), v.data()}, 1);
    for (int64_t i = 0; i < kN; ++i) {
      const bool bad = i == 3 || i == 20;
      EXPECT_EQ(std::isnan(FloatFromBf16(split.high[i])), bad) << i << " on " << target;
      EXPECT_EQ(std::isnan(JoinFloat(split.high[i], split.low[i])), bad) << i;
    }
  });
}

TEST(SumOfSquaresTest, AddsInDoubleAndTheSameForAnyNumberOfThreads) {
  for (const int64_t n : {0, 1, 15, 33, 32768, 32769, 2500001}) {
    const std::vector<float> x = Normals(n, "x");
    double want = 0;
    for (const float value : x) want += static_cast<double>(value) * static_cast<double>(value);
    const double got = SumOfSquares(x.data(), n, 1);
    EXPECT_NEAR(got, want, 1e-12 * want) << n;
    EXPECT_EQ(got, SumOfSquares(x.data(), n, 4)) << n;
  }
}

TEST(AccumulateTest, AddsElementByElementAndReturnsTheSumOfSquares) {
  for (const int64_t n : {0, 1, 17, 70001}) {
    const std::vector<float> x = Normals(n, "x"), start = Normals(n, "start");
    std::vector<float> want = start;
    for (size_t i = 0; i < want.size(); ++i) want[i] += x[i];
    const double squares = SumOfSquares(want.data(), n, 1);
    for (const int threads : {1, 4}) {
      std::vector<float> got = start;
      EXPECT_EQ(Accumulate(x.data(), got.data(), n, threads), squares) << n;
      EXPECT_EQ(got, want) << n;
    }
  }
}

TEST(CopyTest, CopiesAll) {
  for (const int64_t n : {0, 1, 70001}) {
    const std::vector<float> x = Normals(n, "x");
    std::vector<float> to(x.size(), 7);
    Copy(x.data(), to.data(), n, 4);
    EXPECT_EQ(to, x);
  }
}

}  // namespace
}  // namespace plumb
