// SPDX-License-Identifier: Apache-2.0
#include "cli/compare/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace plumb::cli {
namespace {

TEST(SummarizeTest, IsTheMeanAndTheDeviationOfTheSample) {
  // The squared deviations from 5 are 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, and the result is
  // sqrt(32 / 7).
  const MeanAndSd summary = Summarize({2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_EQ(summary.n, 8);
  EXPECT_DOUBLE_EQ(summary.mean, 5);
  EXPECT_NEAR(summary.sd, 2.138089935299395, 1e-15);
}

TEST(SummarizeTest, OneValueHasNoDeviationAndNoValueNoMean) {
  EXPECT_EQ(Summarize({3}).mean, 3);
  EXPECT_TRUE(std::isnan(Summarize({3}).sd));
  EXPECT_EQ(Summarize({}).n, 0);
  EXPECT_TRUE(std::isnan(Summarize({}).mean));
}

TEST(SummarizeTest, KeepsSmallDifferencesOfLargeValues) {
  EXPECT_NEAR(Summarize({1e9 + 1, 1e9 + 2, 1e9 + 3}).sd, 1, 1e-9);
}

// Entry of the upper critical values of Student's t in the NIST/SEMATECH e-Handbook of Statistical
// Methods, 1.3.6.7.2.
struct TableEntry {
  int df;
  double p, t;
};
class StudentQuantileTest : public testing::TestWithParam<TableEntry> {};

TEST_P(StudentQuantileTest, AgreesWithThePublishedTable) {
  const TableEntry& entry = GetParam();
  EXPECT_NEAR(StudentQuantile(entry.p, entry.df), entry.t, 0.0005 + 1e-9);
  EXPECT_NEAR(StudentQuantile(1 - entry.p, entry.df), -entry.t, 0.0005 + 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Nist, StudentQuantileTest,
                         testing::Values(TableEntry{1, 0.90, 3.078}, TableEntry{1, 0.975, 12.706},
                                         TableEntry{1, 0.999, 318.309}, TableEntry{2, 0.975, 4.303},
                                         TableEntry{3, 0.975, 3.182}, TableEntry{4, 0.975, 2.776},
                                         TableEntry{5, 0.95, 2.015}, TableEntry{9, 0.975, 2.262},
                                         TableEntry{10, 0.99, 2.764}, TableEntry{19, 0.975, 2.093},
                                         TableEntry{30, 0.975, 2.042}, TableEntry{60, 0.995, 2.660},
                                         TableEntry{100, 0.975, 1.984}));

TEST(StudentQuantileTest, HasTheClosedFormsOfOneAndTwoDegrees) {
  const double pi = std::acos(-1.0);
  for (double p : {0.6, 0.9, 0.975, 0.9999}) {
    const double cauchy = std::tan(pi * (p - 0.5));
    EXPECT_NEAR(StudentQuantile(p, 1), cauchy, 1e-10 * cauchy);
    const double two = (2 * p - 1) / std::sqrt(2 * p * (1 - p));
    EXPECT_NEAR(StudentQuantile(p, 2), two, 1e-10 * two);
  }
  EXPECT_NEAR(StudentQuantile(0.5, 7), 0, 1e-12);
}

TEST(StudentQuantileTest, ApproachesTheNormalDistribution) {
  EXPECT_NEAR(StudentQuantile(0.975, 100000000), 1.959963985, 1e-6);
  EXPECT_GT(StudentQuantile(0.975, 1000), 1.959963985);
}

TEST(ConfidenceIntervalTest, IsTheMeanPlusMinusTStandardErrors) {
  // With mean 0.3, sd 0.1 and n 3, the half width is 4.302652730 * 0.1 / sqrt(3) = 0.248413771.
  const Interval interval = ConfidenceInterval95({0.2, 0.3, 0.4});
  EXPECT_EQ(interval.n, 3);
  EXPECT_NEAR(interval.mean, 0.3, 1e-15);
  EXPECT_NEAR(interval.low, 0.3 - 0.2484137712, 1e-9);
  EXPECT_NEAR(interval.high, 0.3 + 0.2484137712, 1e-9);
}

TEST(ConfidenceIntervalTest, OneDifferenceHasAMeanAndNoInterval) {
  const Interval interval = ConfidenceInterval95({0.5});
  EXPECT_EQ(interval.mean, 0.5);
  EXPECT_TRUE(std::isnan(interval.low));
  EXPECT_TRUE(std::isnan(interval.high));
  EXPECT_TRUE(std::isnan(ConfidenceInterval95({}).mean));
}

TEST(LossFiguresTest, LookAtTheirOwnSteps) {
  std::vector<double> losses;
  for (int step = 1; step <= 200; ++step) losses.push_back(step);
  losses[24] = 1000;   // step 25, after the first 20
  losses[150] = 0.25;  // step 151
  const LossFigures figures = FiguresOf(losses);
  EXPECT_DOUBLE_EQ(figures.first_50, (50 * 51 / 2 - 25 + 1000) / 50.0);
  EXPECT_DOUBLE_EQ(figures.last_100, (100 * (101 + 200) / 2.0 - 151 + 0.25) / 100);
  EXPECT_EQ(figures.max_first_20, 20);
  EXPECT_EQ(figures.min, 0.25);
}

TEST(LossFiguresTest, TakeWhatThereIsOfAShortTraining) {
  const LossFigures figures = FiguresOf({3, 1, 2});
  EXPECT_EQ(figures.first_50, 2);
  EXPECT_EQ(figures.last_100, 2);
  EXPECT_EQ(figures.max_first_20, 3);
}

TEST(CollapsedTest, IsWithinOnePercentOfTheUnigramEntropyOrAbove) {
  EXPECT_TRUE(IsCollapsed(2.98, 3));
  EXPECT_TRUE(IsCollapsed(3.5, 3));
  EXPECT_FALSE(IsCollapsed(2.96, 3));
}

}  // namespace
}  // namespace plumb::cli
