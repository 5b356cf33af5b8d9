#include "runtime/ops/optimizer.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"

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

// Segments of odd lengths with padding between them, and one of more than a task's elements.
const std::vector<AdamWSegment> kSegments = {
    {0, 1, 0.1f, 1.0f},       {16, 33, 0.0f, 0.5f},        {48, 64, 0.1f, 1.0f},
    {64, 70007, 0.05f, 2.0f}, {70016, 100000, 0.0f, 1.0f},
};
constexpr int64_t kSize = 100000;

AdamWStep StepNumber(int64_t t) {
  AdamWStep step;
  step.learning_rate = 3e-3f / static_cast<float>(t);
  step.beta1 = 0.9f;
  step.beta2 = 0.95f;
  step.eps = 1e-8f;
  step.step = t;
  step.grad_scale = 0.25f * static_cast<float>(t);
  return step;
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
        const AdamWStep step = StepNumber(t);
        const double b1 = step.beta1, b2 = step.beta2;
        const double lr = static_cast<double>(step.learning_rate) * segment.lr_scale;
        const double g =
            static_cast<double>(grads[static_cast<size_t>(t - 1)][at]) * step.grad_scale;
        p *= 1 - lr * segment.weight_decay;
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        p -= lr * (m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + step.eps);
      }
      ASSERT_NEAR(got.param[at], p, 2e-6 * (1 + std::fabs(p))) << "element " << i;
      ASSERT_NEAR(got.m[at], m, 1e-6 * (1 + std::fabs(m))) << "element " << i;
      ASSERT_NEAR(got.v[at], v, 1e-6 * (1 + v)) << "element " << i;
    }
  }
}

TEST(AdamWTest, TakesAStepOfTheLearningRateFirst) {
  // Before any history m / sqrt(v) is the gradient's sign, whatever its size.
  std::vector<float> grad = {1e-3f, -5.0f, 2.0f}, param = {1, 1, 1}, m(3), v(3);
  AdamWStep step = StepNumber(1);
  step.learning_rate = 0.1f;
  step.grad_scale = 1;
  AdamWUpdate({{0, 3, 0.0f, 1.0f}}, step, {grad.data(), param.data(), m.data(), v.data()}, 1);
  EXPECT_THAT(param,
              testing::Pointwise(testing::FloatNear(1e-5f), std::vector<float>{0.9f, 1.1f, 0.9f}));
}

TEST(AdamWTest, DoesNotDependOnTheNumberOfThreads) {
  const State one = Train(3, 1), four = Train(3, 4);
  EXPECT_EQ(one.param, four.param);
  EXPECT_EQ(one.m, four.m);
  EXPECT_EQ(one.v, four.v);
}

TEST(AdamWTest, LeavesWhatLiesBetweenSegmentsAlone) {
  const State got = Train(3, 4);
  const std::vector<float> start = Normals(kSize, "param");
  for (size_t s = 0; s + 1 < kSegments.size(); ++s) {
    for (int64_t i = kSegments[s].end; i < kSegments[s + 1].begin; ++i) {
      EXPECT_EQ(got.param[static_cast<size_t>(i)], start[static_cast<size_t>(i)]);
      EXPECT_EQ(got.m[static_cast<size_t>(i)], 0);
    }
  }
}

TEST(AdamWTest, HasNothingToDoWithoutSegments) {
  AdamWUpdate({}, StepNumber(1), {nullptr, nullptr, nullptr, nullptr}, 4);
}

TEST(AdamWTest, TheCopyIsTheNewParametersRoundedAndChangesNothingElse) {
  const State plain = Train(1, 1);
  for (const int threads : {1, 4}) {
    const std::vector<float> grad = GradientAt(1);
    State state = {Normals(kSize, "param"), std::vector<float>(kSize), std::vector<float>(kSize)};
    constexpr uint16_t kUntouched = 0x1234;
    std::vector<uint16_t> copy(kSize, kUntouched);
    AdamWUpdate(kSegments, StepNumber(1),
                {grad.data(), state.param.data(), state.m.data(), state.v.data(), copy.data()},
                threads);
    EXPECT_EQ(state.param, plain.param);
    EXPECT_EQ(state.m, plain.m);
    EXPECT_EQ(state.v, plain.v);
    size_t segment = 0;
    for (int64_t i = 0; i < kSize; ++i) {
      const size_t at = static_cast<size_t>(i);
      if (i >= kSegments[segment].end && segment + 1 < kSegments.size()) ++segment;
      const bool inside = i >= kSegments[segment].begin && i < kSegments[segment].end;
      ASSERT_EQ(copy[at], inside ? Bf16FromFloat(state.param[at]) : kUntouched) << i;
    }
  }
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

TEST(FirstNonFiniteTest, FindsTheFirst) {
  constexpr int64_t kN = 70001;
  std::vector<float> x = Normals(kN, "x");
  x[5] = std::numeric_limits<float>::max();
  x[6] = -std::numeric_limits<float>::max();
  EXPECT_EQ(FirstNonFinite(x.data(), kN), -1);
  EXPECT_EQ(FirstNonFinite(x.data(), 0), -1);
  x[kN - 1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(FirstNonFinite(x.data(), kN), kN - 1);
  EXPECT_EQ(FirstNonFinite(x.data(), kN - 1), -1);
  x[40000] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(FirstNonFinite(x.data(), kN), 40000);
  x[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FirstNonFinite(x.data(), kN), 0);
}

}  // namespace
}  // namespace plumb
