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

constexpr double kDiverged = std::numeric_limits<double>::infinity();

RunValues GetValues(const std::vector<std::vector<double>>& losses) {
  RunValues values;
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
RunValues Draw(const std::vector<double>& means, int64_t seeds, double sd, uint64_t study) {
  const RngStream stream(study, "comparison_test");
  RunValues values(means.size());
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
  const RunValues values = GetValues({{1, 2, 3}, {1.5, kNaN, 4}, {0, 0, 0}});
  const Comparison comparison = CompareModels(values);
  ASSERT_EQ(comparison.pairs.size(), 3);
  EXPECT_EQ(comparison.Pair(0, 1).interval.n, 2);
  EXPECT_DOUBLE_EQ(comparison.Pair(1, 0).interval.mean, 0.75);
  EXPECT_EQ(comparison.Pair(0, 2).a, 0);
  EXPECT_EQ(comparison.Pair(2, 1).a, 1);
  EXPECT_DOUBLE_EQ(comparison.Pair(0, 2).interval.mean, -2);
  EXPECT_EQ(comparison.family, 2);
}

TEST(CompareModelsTest, AdjustsWithinAFamily) {
  const RunValues values = Draw({0, 0.1}, 5, 0.1, 3);
  const Comparison alone = CompareModels(values);
  EXPECT_EQ(alone.pairs[0].p_holm, alone.pairs[0].p_student);
  std::vector<Comparison> two = {alone, alone};
  AdjustTogether(&two);
  EXPECT_EQ(two[0].family, 2);
  EXPECT_DOUBLE_EQ(two[1].pairs[0].p_holm, std::min(1.0, 2 * alone.pairs[0].p_student));
}

TEST(CompareModelsTest, PairsWithTheBaselineAreAFamilyOfTheirOwn) {
  const Comparison comparison = CompareModels(Draw({0, 0.1, 0.2}, 6, 0.1, 3));
  EXPECT_EQ(comparison.family, 2);
  const PairedDifference &first = comparison.Pair(0, 1), &second = comparison.Pair(0, 2);
  EXPECT_DOUBLE_EQ(std::min(first.p_holm, second.p_holm),
                   std::min(1.0, 2 * std::min(first.p, second.p)));
  // The third pair is adjusted among all three.
  const std::vector<double> all = HolmAdjusted({first.p, second.p, comparison.Pair(1, 2).p});
  EXPECT_DOUBLE_EQ(comparison.Pair(1, 2).p_holm, all[2]);
}

TEST(CompareModelsTest, DivergedRunsAreWorseThanAnyLoss) {
  // b is lower with five seeds and higher with one, and both diverged with the last.
  const Comparison comparison = CompareModels(
      GetValues({{2, 2, 2, kDiverged, 2, 2, kDiverged}, {1, 1, 1, 9, kDiverged, 1, kDiverged}}));
  const PairedDifference& pair = comparison.pairs[0];
  EXPECT_EQ(pair.test, PairTest::kSign);
  EXPECT_EQ(pair.lower, 5);
  EXPECT_EQ(pair.higher, 1);
  EXPECT_EQ(pair.interval.n, 7);
  EXPECT_TRUE(std::isnan(pair.interval.mean));
  EXPECT_NEAR(pair.p_holm, 0.21875, 1e-14);  // scipy.stats.binomtest(1, 6)
  EXPECT_EQ(comparison.models[1].loss.n, 5);
  EXPECT_EQ(comparison.models[1].diverged, 2);
}

TEST(CompareModelsTest, CollapsedRunsAreComparedBySignFlips) {
  RunValues values = Draw({0, 1}, 6, 0.05, 1);
  EXPECT_EQ(CompareModels(values).pairs[0].test, PairTest::kStudent);
  values[1][2]->is_collapsed = true;
  const PairedDifference pair = CompareModels(values).pairs[0];
  EXPECT_EQ(pair.test, PairTest::kSignFlip);
  EXPECT_DOUBLE_EQ(pair.p_holm, 2.0 / 64);
  values[1][3]->loss = kDiverged;
  EXPECT_EQ(CompareModels(values).pairs[0].test, PairTest::kSign);
}

TEST(CompareModelsTest, EqualityIsClaimedWithinAMargin) {
  const RunValues values = Draw({0, 0.01, 1}, 10, 0.02, 2);
  EXPECT_TRUE(std::isnan(CompareModels(values).Pair(0, 1).p_equal));
  const Comparison comparison = CompareModels(values, 0.1);
  EXPECT_TRUE(comparison.Pair(0, 1).is_equal());
  EXPECT_FALSE(comparison.Pair(0, 2).is_equal());
  EXPECT_DOUBLE_EQ(comparison.Pair(0, 1).p_equal, 2 * comparison.Pair(0, 1).p_equivalence);
  EXPECT_THAT(Classify(comparison).equal, ElementsAre(1));
  // A failed run makes no claim of equality.
  RunValues failed = values;
  failed[1][0]->is_collapsed = true;
  EXPECT_TRUE(std::isnan(CompareModels(failed, 0.1).Pair(0, 1).p_equal));
}

TEST(RankedTest, OrdersByDivergedRunsAndThenByTheMean) {
  const Comparison comparison = CompareModels(GetValues({{3, 3, 3},
                                                         {1, kDiverged, 1},
                                                         {2, 2, 2},
                                                         {kNaN, kNaN, kNaN},
                                                         {kDiverged, kDiverged, 0},
                                                         {4, kNaN, 4}}));
  EXPECT_THAT(comparison.Ranked(), ElementsAre(2, 0, 5, 1, 4));
}

TEST(MeanRanksTest, DivergedRunsAreLastAndTiesShareTheirRank) {
  // Ranks with seed 1: 1, 2.5, 2.5; with seed 2: 1, 3, 3. The last seed lacks a run.
  EXPECT_THAT(MeanRanks({GetValues({{1, 5, 1}, {2, kDiverged, 1}, {2, kDiverged, kNaN}})}),
              ElementsAre(1, 2.75, 2.75));
  EXPECT_TRUE(std::isnan(MeanRanks({GetValues({{1}, {kNaN}})})[0]));
}

TEST(BootstrapPlacesTest, NeedFiveSeedsAndTwoFinishedRuns) {
  EXPECT_FALSE(BootstrapPlaces(Draw({0, 1}, 4, 0.05, 1))[0].has_value());
  const auto places = BootstrapPlaces(GetValues(
      {{1, 2, 3, 4, 5}, {1, kDiverged, kDiverged, kDiverged, kDiverged}, {2, 3, 4, 5, 6}}));
  EXPECT_FALSE(places[1].has_value());
  EXPECT_EQ(places[2]->high, 2);
}

// The true order is that of the models. Nearly tied places are in the interval a little less often
// than 95 %, because the seeds are few.
TEST(BootstrapPlacesTest, ContainTheTruePlace) {
  int contained = 0;
  for (uint64_t study = 1; study <= 100; ++study) {
    const auto places = BootstrapPlaces(Draw({0, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3}, 5, 0.01, study));
    for (int64_t i = 0; i < 6; ++i) contained += places[i]->low <= i + 1 && i < places[i]->high;
  }
  EXPECT_GT(contained, 540);
}

TEST(BootstrapPlacesTest, CoverTheOrderOfSampledSeeds) {
  const auto places = BootstrapPlaces(Draw({2, 0, 0.001, 1}, 8, 0.05, 1));
  EXPECT_EQ(places[0]->low, 4);
  EXPECT_EQ(places[0]->high, 4);
  EXPECT_EQ(places[1]->low, 1);
  EXPECT_EQ(places[1]->high, 2);
  EXPECT_EQ(places[2]->low, 1);
  EXPECT_EQ(places[2]->high, 2);
  EXPECT_EQ(places[3]->low, 3);
  EXPECT_EQ(BootstrapPlaces(Draw({2, 0, 0.001, 1}, 8, 0.05, 1))[2]->low, 1);
}

// A sample of five seeds lacks a given one with a probability of 33 %.
TEST(BootstrapPlacesTest, WorseRunsNeverMoveAModelUp) {
  for (uint64_t study = 1; study <= 20; ++study) {
    RunValues values = Draw({0, 0.02, 0.04, 0.06}, 5, 0.05, study);
    const auto before = BootstrapPlaces(values);
    for (const double loss : {values[1][2]->loss + 1, kDiverged}) {
      values[1][2]->loss = loss;
      const auto after = BootstrapPlaces(values);
      EXPECT_GE(after[1]->low, before[1]->low) << study;
      EXPECT_GE(after[1]->high, before[1]->high) << study;
    }
    EXPECT_EQ(CompareModels(values).Ranked().back(), 1);
  }
}

TEST(VerdictTest, HasAClassForEachClaim) {
  RunValues values = Draw({0, -0.3, -0.2, 0.001, 1, 0.036}, 10, 0.03, 1);
  Comparison comparison = CompareModels(values, 0.07);
  const std::vector<std::string> names = {"pre", "a", "b", "c", "d", "e"};
  EXPECT_EQ(Plain(VerdictText(comparison, names)),
            "Better than pre: a (−0.289) and b (−0.178); equal within 0.07: c; worse: d (+1.001); "
            "undecided: e (about 29 seeds would decide e).");
  const auto twice = [](int64_t judging) { return 2 * judging - 1; };
  EXPECT_THAT(VerdictText(comparison, names, twice), testing::HasSubstr("about 57 seeds"));
  values[4][0]->loss = kDiverged;
  values[0][1]->is_collapsed = true;
  comparison = CompareModels(values);
  EXPECT_EQ(Plain(VerdictText(comparison, names)),
            "Better than pre: a (−0.289) and b (−0.178); worse: d (higher in 10 of 10 seeds, "
            "diverged in 1 of 10); undecided: c and e. pre collapsed in 1 of 10.");
}

TEST(VerdictTest, NamesFiveModelsOfAClass) {
  EXPECT_THAT(Plain(VerdictText(CompareModels(Draw({0, 1, 2, 3, 4, 5, 6, -1}, 6, 0.05, 1)),
                                {"pre", "b", "c", "d", "e", "f", "g", "h"})),
              testing::ContainsRegex(
                  "worse: b \\(.*\\), c \\(.*\\), d \\(.*\\), e \\(.*\\) and 2 others\\."));
}

TEST(VerdictTest, BaselineMayBeBetterThanTheOthers) {
  const Comparison comparison = CompareModels(Draw({0, 1, 2}, 5, 0.05, 1));
  EXPECT_EQ(Plain(VerdictText(comparison, {"pre", "post", "no_norm"})),
            "pre is better than post (+1.017) and no_norm (+1.988).");
}

// With the highest mean because of one run, a model was "not distinguishable" from the best.
TEST(VerdictTest, FailedRunsAreNotHiddenByTheirVariance) {
  RunValues values = Draw({0, -0.01, 0.3}, 8, 0.003, 1);
  values[1][0]->loss += 5;
  values[1][0]->is_collapsed = true;
  const Comparison comparison = CompareModels(values);
  EXPECT_EQ(comparison.Ranked().back(), 1);
  EXPECT_THAT(Plain(VerdictText(comparison, {"pre", "a", "b"})),
              testing::AllOf(HasSubstr("undecided: a (collapsed in 1 of 8)"),
                             HasSubstr("Worse than pre: b (+0.299")));
}

TEST(VerdictTest, FewerThanTwoFinishedRunsAreNeverGood) {
  RunValues values = GetValues({{kDiverged, kDiverged, kDiverged}, {1, kDiverged, kDiverged}});
  EXPECT_EQ(Plain(VerdictText(CompareModels(values), {"pre", "a"})),
            "Undecided against pre: a (diverged in 2 of 3). pre diverged in 3 of 3.");
  EXPECT_FALSE(BootstrapPlaces(values)[1].has_value());
  const Comparison comparison = CompareModels(GetValues({{1, 1, 2}, {0, kNaN, kNaN}}));
  EXPECT_THAT(comparison.Ranked(), ElementsAre(0, 1));
}

TEST(VerdictTest, SeedsAgreeingInAFailureAreCounted) {
  const Comparison comparison =
      CompareModels(GetValues({{1, 1.1, 0.9, 1, 1.2}, {2, 2.1, kDiverged, 1.7, kDiverged}}));
  EXPECT_EQ(Plain(VerdictText(comparison, {"pre", "a"})),
            "Undecided against pre: a (diverged in 2 of 5; about 6 seeds would decide a).");
}

TEST(VerdictTest, OneSeedHasNoVerdict) {
  const Comparison comparison = CompareModels(GetValues({{1.0}, {2.0}}));
  EXPECT_EQ(Plain(VerdictText(comparison, {"pre", "post"})),
            "Undecided against pre: post. With fewer than two seeds for each, or the same "
            "difference in every seed, nobody can say whether a difference is chance.");
}

TEST(VerdictTest, EqualDifferencesAreNoEvidence) {
  const Comparison two = CompareModels(GetValues({{1.0, 2.0}, {1.5, 2.5}}));
  EXPECT_TRUE(std::isnan(two.pairs[0].p_holm));
  EXPECT_EQ(two.pairs[0].p_sign_flip, 0.5);
  EXPECT_EQ(two.family, 0);
  EXPECT_THAT(VerdictText(two, {"pre", "post"}), HasSubstr("nobody can say"));
  const Comparison same = CompareModels(GetValues({{1.0, 2.0}, {1.0, 2.0}}));
  EXPECT_EQ(Plain(VerdictText(same, {"pre", "post"})), "Undecided against pre: post.");
  // Among other models the pair does not count.
  const Comparison three =
      CompareModels(GetValues({{1.0, 2.0, 3.0}, {1.5, 2.5, 3.5}, {9.0, 10.1, 10.9}}));
  EXPECT_EQ(three.family, 1);
  EXPECT_EQ(Plain(VerdictText(three, {"a", "b", "c"})), "Worse than a: c (+8.000); undecided: b.");
}

TEST(VerdictTest, IgnoresModelsWithoutRuns) {
  const Comparison comparison = CompareModels(GetValues({{1.0, 1.1}, {kNaN, kNaN}}));
  EXPECT_EQ(Plain(VerdictText(comparison, {"pre", "post"})), "Only pre has runs to compare.");
  EXPECT_EQ(VerdictText(CompareModels({}), {}), "No run has a loss to compare.");
  EXPECT_EQ(Plain(VerdictText(CompareModels(GetValues({{kNaN}, {1.0}, {2.0}})), {"pre", "a", "b"})),
            "There is no run of pre, the baseline, to compare.");
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

}  // namespace
}  // namespace plumb
