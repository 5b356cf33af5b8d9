// SPDX-License-Identifier: Apache-2.0
// The accuracy of the vector functions over the range of values in networks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/kernels/simd/activation_kind.h"
#include "runtime/ops/ops.h"
#include "tests/kernels/simd_targets.h"
#include "tests/ops/op_test_util.h"

namespace plumb {
namespace {

// Points, dense around 0, where the functions are curved, and sparse further out.
std::vector<double> Points() {
  std::vector<double> points;
  for (int i = -20000; i <= 20000; ++i) points.push_back(static_cast<float>(i * 1e-3 + 3e-4));
  for (double x = 1e-30; x < 1e15; x *= 1.37) {
    points.push_back(static_cast<float>(x));
    points.push_back(static_cast<float>(-x));
  }
  return points;
}

std::vector<double> Apply(const std::string& op, const std::string& kind,
                          const std::vector<double>& x) {
  OpRegistry registry;
  RegisterOps(&registry);
  const Shape shape = {static_cast<int64_t>(x.size())};
  OpCase c;
  c.op = op;
  c.inputs = {Values(shape, x)};
  if (op == "act_grad") c.inputs.push_back(Values(shape, std::vector<double>(x.size(), 1.0)));
  c.attrs = Attrs({{"kind", kind}});
  const auto graph = BuildCase(registry, c);
  EXPECT_TRUE(graph.ok()) << graph.status();
  const auto y = RunKernel(*graph, MakeInputs(c), 1);
  EXPECT_TRUE(y.ok()) << y.status();
  return (*y)[0].f;
}

// Returns the exponent E of the tail e^-E with which a function decays to the left. E is itself
// computed in f32, with up to four roundings of half a unit in the last place: a relative error of
// 2.4e-7 E in the tail.
double TailExponent(ActivationKind kind, double x) {
  if (x >= 0) return 0;
  switch (kind) {
    case ActivationKind::kGelu:
      return x * x / 2;
    case ActivationKind::kGeluTanh:
      return -1.5957691216 * (x + 0.044715 * x * x * x);
    case ActivationKind::kSilu:
    case ActivationKind::kSigmoid:
    case ActivationKind::kSoftplus:
      return -x;
    case ActivationKind::kRelu:
    case ActivationKind::kTanh:
    case ActivationKind::kErf:
      return 0;
  }
  return 0;
}

class ActivationTest : public testing::TestWithParam<std::string> {};

TEST_P(ActivationTest, ValueIsAccurateInTheTailsToo) {
  const ActivationKind kind = *ParseActivationKind(GetParam());
  const std::vector<double> points = Points();
  ForEachSimdTarget([&](const std::string& target) {
    const std::vector<double> y = Apply("act", GetParam(), points);
    for (size_t i = 0; i < points.size(); ++i) {
      const double expected = ReferenceActivation(kind, points[i]);
      const double relative = 4e-7 + 2.4e-7 * TailExponent(kind, points[i]);
      const double underflow = 1e-37 * std::max(1.0, std::abs(points[i]));
      ASSERT_LE(std::abs(y[i] - expected), relative * std::abs(expected) + underflow)
          << GetParam() << "(" << points[i] << ") on " << target;
    }
  });
}

TEST_P(ActivationTest, DerivativeIsAccurate) {
  const ActivationKind kind = *ParseActivationKind(GetParam());
  const std::vector<double> points = Points();
  ForEachSimdTarget([&](const std::string& target) {
    const std::vector<double> dx = Apply("act_grad", GetParam(), points);
    for (size_t i = 0; i < points.size(); ++i) {
      ASSERT_LE(std::abs(dx[i] - ReferenceActivationDerivative(kind, points[i])), 3e-7)
          << GetParam() << "'(" << points[i] << ") on " << target;
    }
  });
}

TEST_P(ActivationTest, NanGivesNan) {
  ForEachSimdTarget([&](const std::string& target) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double y : Apply("act", GetParam(), std::vector<double>(21, nan))) {
      EXPECT_TRUE(std::isnan(y)) << GetParam() << " on " << target;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, ActivationTest,
                         testing::Values("relu", "gelu", "gelu_tanh", "silu", "softplus", "tanh",
                                         "sigmoid", "erf"),
                         [](const auto& test) { return std::string(test.param); });

TEST(ActivationKindTest, SuggestsANameForAMisspeltOne) {
  const auto kind = ParseActivationKind("gelu_tahn");
  ASSERT_FALSE(kind.ok());
  EXPECT_NE(kind.status().message().find("gelu_tanh"), absl::string_view::npos) << kind.status();
}

TEST(MapTest, LogOfNegativeIsNaN) {
  ForEachSimdTarget([&](const std::string& target) {
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> y = Apply("map", "log", {-1, 0, infinity, 1, -infinity});
    EXPECT_TRUE(std::isnan(y[0])) << target;
    EXPECT_EQ(y[1], -infinity) << target;
    EXPECT_EQ(y[2], infinity) << target;
    EXPECT_EQ(y[3], 0) << target;
    EXPECT_TRUE(std::isnan(y[4])) << target;
  });
}

// Schedules read the number of the step, which may be large.
TEST(MapTest, CosAndSinOfLargeNumbers) {
  ForEachSimdTarget([&](const std::string& target) {
    const std::vector<double> x = {1e5, 1e6, 16777216, -3e7};
    const std::vector<double> cos = Apply("map", "cos", x), sin = Apply("map", "sin", x);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(cos[i], std::cos(x[i]), 1e-6) << target;
      EXPECT_NEAR(sin[i], std::sin(x[i]), 1e-6) << target;
    }
  });
}

TEST(MapTest, NanGivesNan) {
  ForEachSimdTarget([&](const std::string& target) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const char* kind : {"exp", "log", "sqrt", "abs", "reciprocal", "cos", "sin", "floor"}) {
      for (const double y : Apply("map", kind, std::vector<double>(21, nan))) {
        EXPECT_TRUE(std::isnan(y)) << kind << " on " << target;
      }
    }
  });
}

}  // namespace
}  // namespace plumb
