// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::vector<std::vector<std::optional<RunValue>>>;

Values GetValues(const std::vector<std::vector<double>>& losses) {
  Values values;
  for (const auto& model : losses) {
    values.emplace_back();
    for (double loss : model) {
      values.back().push_back(std::isnan(loss) ? std::nullopt : std::optional(RunValue{loss}));
    }
  }
  return values;
}

std::string Plain(const std::string& text) { return absl::StrReplaceAll(text, {{kNameMark, ""}}); }

// Returns the values of models with these means over `seeds` seeds. Every seed adds a number that
// all models share, and every run one of its own with standard deviation `sd`.
Values Draw(const std::vector<double>& means, int64_t seeds, double sd, uint64_t study) {
  const RngStream stream(study, "comparison_test");
  Values values(means.size());
  uint64_t draw = 0;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    const double shared = stream.Normal(draw++);
    for (size_t model = 0; model < means.size(); ++model) {
      values[model].push_back(RunValue{means[model] + shared + sd * stream.Normal(draw++)});
    }
  }
  return values;
}

TEST(CompareModelsTest, PairsSharedSeeds) {
  const Values values = GetValues({{1, 2, 3}, {1.5, kNaN, 4}, {0, 0, 0}});
  const Comparison comparison = CompareModels(values);
  ASSERT_EQ(comparison.pairs.size(), 3);
  EXPECT_EQ(comparison.Pair(0, 1).interval.n, 2);
  EXPECT_DOUBLE_EQ(comparison.Pair(1, 0).interval.mean, 0.75);
  EXPECT_EQ(comparison.Pair(0, 2).a, 0);
  EXPECT_EQ(comparison.Pair(2, 1).a, 1);
  EXPECT_DOUBLE_EQ(comparison.Pair(0, 2).interval.mean, -2);
  EXPECT_EQ(comparison.family, 3);
}

TEST(CompareModelsTest, AdjustsWithinAFamily) {
  const Values values = Draw({0, 0.1}, 5, 0.1, 3);
  const Comparison alone = CompareModels(values);
  EXPECT_EQ(alone.pairs[0].p_holm, alone.pairs[0].p_student);
  std::vector<Comparison> two = {alone, alone};
  AdjustTogether(&two);
  EXPECT_EQ(two[0].family, 2);
  EXPECT_DOUBLE_EQ(two[1].pairs[0].p_holm, std::min(1.0, 2 * alone.pairs[0].p_student));
}

TEST(VerdictTest, CollapsedRunsAddACaution) {
  Values values = Draw({0, 1}, 5, 0.05, 1);
  EXPECT_THAT(VerdictText(CompareModels(values), {"pre", "post"}),
              testing::Not(HasSubstr("collapsed")));
  values[1][2]->is_collapsed = true;
  const Comparison comparison = CompareModels(values);
  EXPECT_TRUE(comparison.pairs[0].has_collapsed);
  EXPECT_DOUBLE_EQ(comparison.pairs[0].p_sign_flip, 2.0 / 32);
  EXPECT_THAT(VerdictText(comparison, {"pre", "post"}), HasSubstr("Runs have collapsed"));
}

TEST(VerdictTest, ModelsThatCannotBeDistinguishedShareTheFirstPlace) {
  const Comparison comparison = CompareModels(Draw({2, 0, 0, 1}, 8, 0.05, 1));
  const Verdict verdict = RankModels(comparison);
  EXPECT_THAT(verdict.best, testing::UnorderedElementsAre(1, 2));
  EXPECT_THAT(verdict.worse, ElementsAre(3, 0));
  EXPECT_THAT(verdict.unclear, IsEmpty());
  const std::string text = Plain(VerdictText(comparison, {"a", "b", "c", "d"}));
  EXPECT_EQ(text,
            "b and c cannot be distinguished; all are better than d and a. c − b is 0.020 (95 % "
            "interval -0.040 to 0.079, 8 seeds).");
}

TEST(VerdictTest, ABestModelIsBetterThanTheOthers) {
  const Comparison comparison = CompareModels(Draw({0, 1, 2}, 5, 0.05, 1));
  EXPECT_EQ(Plain(VerdictText(comparison, {"pre", "post", "none"})),
            "pre is better than post and none. post − pre is 1.017 (95 % interval 0.948 to 1.087, "
            "5 seeds).");
}

TEST(VerdictTest, OneSeedHasNoVerdict) {
  const Comparison comparison = CompareModels(GetValues({{1.0}, {2.0}}));
  EXPECT_THAT(Plain(VerdictText(comparison, {"pre", "post"})),
              HasSubstr("With fewer than two seeds for each, or"));
  EXPECT_EQ(PowerText(comparison, {"pre", "post"}), "");
}

TEST(VerdictTest, EqualDifferencesAreNoEvidence) {
  const Comparison two = CompareModels(GetValues({{1.0, 2.0}, {1.5, 2.5}}));
  EXPECT_TRUE(std::isnan(two.pairs[0].p_holm));
  EXPECT_EQ(two.pairs[0].p_sign_flip, 0.5);
  EXPECT_EQ(two.family, 0);
  EXPECT_THAT(VerdictText(two, {"pre", "post"}), HasSubstr("nobody can say"));
  EXPECT_EQ(PowerText(two, {"pre", "post"}), "");
  const Comparison same = CompareModels(GetValues({{1.0, 2.0}, {1.0, 2.0}}));
  EXPECT_EQ(Plain(VerdictText(same, {"pre", "post"})), "pre and post cannot be distinguished.");
  // Among other models the pair does not count.
  const Comparison three =
      CompareModels(GetValues({{1.0, 2.0, 3.0}, {1.5, 2.5, 3.5}, {9.0, 10.1, 10.9}}));
  EXPECT_EQ(three.family, 2);
  EXPECT_EQ(Plain(VerdictText(three, {"a", "b", "c"})),
            "a and b cannot be distinguished; all are better than c.");
}

TEST(VerdictTest, IgnoresModelsWithoutValues) {
  const Comparison comparison = CompareModels(GetValues({{1.0, 1.1}, {kNaN, kNaN}}));
  EXPECT_EQ(Plain(VerdictText(comparison, {"pre", "post"})), "Only pre has a loss to compare.");
  EXPECT_EQ(VerdictText(CompareModels({}), {}), "No run has a loss to compare.");
}

// Holm's method keeps the share of studies with any false claim below 5 %. Of 1,000 studies, 5 %
// are 50, and three standard deviations more are 71.
TEST(ComparisonSimulationTest, StudiesWithoutADifferenceRarelyClaimOne) {
  int claims = 0;
  for (uint64_t study = 1; study <= 1000; ++study) {
    const Verdict verdict = RankModels(CompareModels(Draw({0, 0, 0, 0}, 6, 0.3, study)));
    claims += verdict.best.size() < 4 ? 1 : 0;
  }
  EXPECT_LE(claims, 71);
  EXPECT_GE(claims, 10);  // a test that never claims anything would be useless
}

TEST(ComparisonSimulationTest, PowerMatchesThePrediction) {
  // Differences of two runs with standard deviation 1 / sqrt(2) have standard deviation 1.
  int claims = 0;
  for (uint64_t study = 1; study <= 1000; ++study) {
    const Comparison comparison = CompareModels(Draw({0, 0.5}, 16, std::sqrt(0.5), study));
    claims += comparison.pairs[0].is_significant() ? 1 : 0;
  }
  const double power = StudentPower(0.5, 16, 0.05);
  EXPECT_NEAR(claims / 1000.0, power, 3 * std::sqrt(power * (1 - power) / 1000));
}

TEST(PowerTextTest, HasDetectableEffectAndSeeds) {
  // The differences are 0.1, -0.3, 0.2, -0.4: mean -0.1, standard deviation sqrt(0.26 / 3).
  const Comparison comparison =
      CompareModels(GetValues({{1.0, 1.0, 1.0, 1.0}, {1.1, 0.7, 1.2, 0.6}}));
  EXPECT_EQ(Plain(PowerText(comparison, {"pre", "post"})),
            "With 4 seeds, a difference of 0.63 between post and pre would be detected with a "
            "probability of 80 %; the observed one, 0.1, needs 70 seeds.");
}

}  // namespace
}  // namespace plumb
