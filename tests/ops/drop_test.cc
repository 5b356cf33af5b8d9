// SPDX-License-Identifier: Apache-2.0
// The distribution of drop()'s draws, which comparison with a reference does not test.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/ops/ops.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_test_util.h"

namespace plumb {
namespace {

// Max deviation. Draws are a function of their index, so these tests compute the same numbers in
// every run. Of thousands of numbers, none should be this many standard deviations off.
constexpr double kDeviations = 5;

class DropTest : public testing::Test {
 protected:
  DropTest() { RegisterOps(&registry_); }

  struct Where {
    std::string place = "layers.0.attention.drop";
    std::vector<int32_t> random = {1, 0, 0, 0};  // seed and step, low words first
    int32_t first_row = 0, positions = 0;
  };
  std::vector<double> Drop(const CaseInput& x, double p, bool path, const Where& where) {
    OpCase c;
    c.op = "drop";
    std::vector<int32_t> random = where.random;
    random.insert(random.end(), {where.first_row, where.positions});
    c.inputs = {x, Ints(Shape({6}), random)};
    c.attrs = {{"p", p}, {"path", path}, {"name", where.place}};
    const auto graph = BuildCase(registry_, c);
    EXPECT_TRUE(graph.ok()) << graph.status();
    const auto out = RunKernel(*graph, MakeInputs(c), /*threads=*/1);
    EXPECT_TRUE(out.ok()) << out.status();
    return out->at(0).f;
  }
  static CaseInput Ones(Shape shape) {
    const auto n = static_cast<size_t>(shape.num_elements());
    return Values(shape, std::vector<double>(n, 1));
  }

  OpRegistry registry_;
};

TEST_F(DropTest, DropsWithProbabilityPAndKeepsTheMean) {
  const std::vector<double> x = {-3, -1, -0.5, 0.25, 0.5, 1, 2, 8};  // exact in bf16
  const auto n = static_cast<int64_t>(x.size());
  constexpr int kDraws = 4000;
  for (const double p : {0.1, 0.5, 0.8}) {
    std::vector<double> sums(x.size(), 0), zeros(x.size(), 0);
    for (int draw = 0; draw < kDraws; ++draw) {
      const std::vector<double> y =
          Drop(Values(Shape({1, 2, n / 2}), x), p, /*path=*/false, {"mlp.drop", {1, 0, draw, 0}});
      for (size_t i = 0; i < x.size(); ++i) {
        sums[i] += y[i];
        zeros[i] += y[i] == 0;
        if (y[i] == 0) continue;
        ASSERT_NEAR(y[i], x[i] / (1 - p), 1e-6 * std::fabs(y[i]));
      }
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const double of_share = std::sqrt(p * (1 - p) / kDraws);
      EXPECT_NEAR(zeros[i] / kDraws, p, kDeviations * of_share) << i;
      EXPECT_NEAR(sums[i] / kDraws, x[i], kDeviations * of_share / (1 - p) * std::fabs(x[i])) << i;
    }
  }
}

TEST_F(DropTest, DropPathDropsWholeSequences) {
  constexpr int64_t kRows = 4000, kOfRow = 6;
  for (const double p : {0.1, 0.5}) {
    const std::vector<double> y = Drop(Ones(Shape({kRows, 2, 3})), p, /*path=*/true, {});
    int64_t dropped = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      const double first = y[static_cast<size_t>(row * kOfRow)];
      for (int64_t i = 0; i < kOfRow; ++i) {
        ASSERT_EQ(y[static_cast<size_t>(row * kOfRow + i)], first) << row;
      }
      dropped += first == 0;
      ASSERT_NEAR(first, first == 0 ? 0 : 1 / (1 - p), 1e-6);
    }
    EXPECT_NEAR(static_cast<double>(dropped) / kRows, p,
                kDeviations * std::sqrt(p * (1 - p) / kRows));
  }
}

TEST_F(DropTest, MasksAreIndependent) {
  const std::vector<Where> all = {{},
                                  {"layers.1.attention.drop"},
                                  {"layers.0.mlp.drop"},
                                  {"layers.0.attention.drop", {2, 0, 0, 0}},
                                  {"layers.0.attention.drop", {1, 1, 0, 0}},
                                  {"layers.0.attention.drop", {1, 0, 1, 0}},
                                  {"layers.0.attention.drop", {1, 0, 2, 0}},
                                  {"layers.0.attention.drop", {1, 0, 0, 1}}};
  constexpr int64_t kElements = 20000;
  std::vector<std::vector<double>> masks;
  for (const Where& where : all) {
    masks.push_back(Drop(Ones(Shape({1, 100, kElements / 100})), 0.5, /*path=*/false, where));
    EXPECT_EQ(Drop(Ones(Shape({1, 100, kElements / 100})), 0.5, /*path=*/false, where),
              masks.back());
    for (size_t other = 0; other + 1 < masks.size(); ++other) {
      int64_t equal = 0;
      for (size_t i = 0; i < masks[other].size(); ++i) equal += masks[other][i] == masks.back()[i];
      EXPECT_NEAR(static_cast<double>(equal) / kElements, 0.5,
                  kDeviations * std::sqrt(0.25 / kElements))
          << other << " and " << masks.size() - 1;
    }
  }
}

// Rows 3 and 4 of a step in a separate pass, whose sequences are shorter than the longest.
TEST_F(DropTest, MasksDoNotDependOnOtherRows) {
  constexpr size_t kWidth = 3, kLong = 7, kShort = 5;
  for (const bool path : {false, true}) {
    const std::vector<double> all =
        Drop(Ones(Shape({6, kLong, kWidth})), 0.5, path, {"a", {1, 0, 2, 0}, 0, kLong});
    const std::vector<double> part =
        Drop(Ones(Shape({2, kShort, kWidth})), 0.5, path, {"a", {1, 0, 2, 0}, 3, kLong});
    size_t kept = 0;
    for (size_t row = 0; row < 2; ++row) {
      for (size_t i = 0; i < kShort * kWidth; ++i) {
        EXPECT_EQ(part[row * kShort * kWidth + i], all[(row + 3) * kLong * kWidth + i]) << row;
        kept += part[row * kShort * kWidth + i] != 0;
      }
    }
    EXPECT_TRUE(path || (kept > 0 && kept < part.size())) << kept;
  }
}

}  // namespace
}  // namespace plumb
