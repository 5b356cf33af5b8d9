// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace plumb {
namespace {

TEST(SummarizeTest, ReturnsMeanAndDeviation) {
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
  const Interval interval = ConfidenceInterval95(Summarize({0.2, 0.3, 0.4}));
  EXPECT_EQ(interval.n, 3);
  EXPECT_NEAR(interval.mean, 0.3, 1e-15);
  EXPECT_NEAR(interval.low, 0.3 - 0.2484137712, 1e-9);
  EXPECT_NEAR(interval.high, 0.3 + 0.2484137712, 1e-9);
}

TEST(ConfidenceIntervalTest, OneDifferenceHasAMeanAndNoInterval) {
  const Interval interval = ConfidenceInterval95(Summarize({0.5}));
  EXPECT_EQ(interval.mean, 0.5);
  EXPECT_TRUE(std::isnan(interval.low));
  EXPECT_TRUE(std::isnan(interval.high));
  EXPECT_TRUE(std::isnan(ConfidenceInterval95(Summarize({})).mean));
}

// The expected values of the next tests were computed by scipy 1.17 and statsmodels 0.14.
const std::vector<double>& SixDifferences() {
  static const auto& differences = *new std::vector<double>{0.12, -0.05, 0.31, 0.22, 0.08, 0.17};
  return differences;
}

TEST(StudentPValueTest, AgreesWithScipy) {
  EXPECT_NEAR(StudentPValue(SixDifferences()), 0.03757482243901004, 1e-12);
  EXPECT_TRUE(std::isnan(StudentPValue({0.5})));
}

// A standard deviation of 0, or of rounding, would claim certainty.
TEST(StudentPValueTest, EqualDifferencesHaveNoValueAndNoInterval) {
  for (const std::vector<double>& differences :
       {std::vector<double>{0.5, 0.5}, {0.1, 0.1, 0.1}, {2.3 - 2.2, 3.3 - 3.2}}) {
    EXPECT_TRUE(std::isnan(StudentPValue(differences))) << differences[0];
    EXPECT_TRUE(std::isnan(ConfidenceInterval95(Summarize(differences)).low)) << differences[0];
  }
  EXPECT_EQ(StudentPValue({0, 0, 0}), 1);
  EXPECT_TRUE(std::isnan(ConfidenceInterval95(Summarize({0, 0, 0})).low));
}

TEST(SignFlipPValueTest, CountsTheAssignmentsOfSigns) {
  EXPECT_DOUBLE_EQ(SignFlipPValue(SixDifferences()), 0.0625);
  EXPECT_DOUBLE_EQ(SignFlipPValue({1, 2, 4, 8, 16, 32}), 2.0 / 64);
  EXPECT_EQ(SignFlipPValue({0.5}), 1);
  EXPECT_EQ(SignFlipPValue({0, 0}), 1);
  EXPECT_TRUE(std::isnan(SignFlipPValue({})));
  EXPECT_TRUE(std::isnan(SignFlipPValue({1, kNaN})));
}

TEST(SignFlipPValueTest, ManyDifferencesAreSampledAndAgreeWithTheExactValue) {
  std::vector<double> differences;
  for (int i = 0; i < 20; ++i) differences.push_back(std::sin(i) + 0.35);
  const double exact = SignFlipPValue(differences);
  ASSERT_GT(exact, 0.01);
  ASSERT_LT(exact, 0.9);
  differences.push_back(0);  // changes no sum, but is one more than are enumerated
  EXPECT_NEAR(SignFlipPValue(differences), exact, 0.006);
  EXPECT_EQ(SignFlipPValue(differences), SignFlipPValue(differences));
}

TEST(SignPValueTest, AgreesWithTheBinomialDistribution) {
  EXPECT_NEAR(SignPValue(1, 7), 0.0703125, 1e-14);
  EXPECT_NEAR(SignPValue(6, 0), 0.03125, 1e-14);
  EXPECT_NEAR(SignPValue(2, 14), 0.004180908203125, 1e-14);
  EXPECT_NEAR(SignPValue(20, 5), 0.004077315330505371, 1e-14);
  EXPECT_NEAR(SignPValue(40, 70), 0.005447429511444476, 1e-13);
  EXPECT_EQ(SignPValue(3, 3), 1);
  EXPECT_EQ(SignPValue(0, 1), 1);
  EXPECT_EQ(SignPValue(0, 0), 1);
}

TEST(EquivalencePValueTest, AgreesWithTwoOneSidedTests) {
  EXPECT_NEAR(EquivalencePValue(SixDifferences(), 0.2), 0.14980530726752284, 1e-12);
  EXPECT_NEAR(EquivalencePValue(SixDifferences(), 0.3), 0.012834381310946382, 1e-12);
  EXPECT_NEAR(EquivalencePValue(SixDifferences(), 0.1), 0.7768695216620412, 1e-12);
  EXPECT_TRUE(std::isnan(EquivalencePValue({0, 0, 0}, 0.1)));
  EXPECT_TRUE(std::isnan(EquivalencePValue({0.01}, 0.1)));
}

TEST(HolmTest, AgreesWithStatsmodelsAndIgnoresMissingValues) {
  const std::vector<double> adjusted = HolmAdjusted({0.01, 0.04, 0.03, std::nan(""), 0.005, 0.5});
  const std::vector<double> expected = {0.04, 0.09, 0.09, 0, 0.025, 0.5};
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i == 3) {
      EXPECT_TRUE(std::isnan(adjusted[i]));
    } else {
      EXPECT_NEAR(adjusted[i], expected[i], 1e-12);
    }
  }
}

TEST(StudentPowerTest, AgreesWithTheNoncentralT) {
  EXPECT_NEAR(StudentPower(0.5, 10, 0.05), 0.29317560651407687, 1e-6);
  EXPECT_NEAR(StudentPower(0.5, 34, 0.05), 0.8077775012792738, 1e-6);
  EXPECT_NEAR(StudentPower(2, 3, 0.05), 0.47074943127843494, 1e-6);
  EXPECT_NEAR(StudentPower(1, 2, 0.05), 0.09280915505633605, 1e-6);
  EXPECT_NEAR(StudentPower(0.3, 20, 0.005), 0.055007887227206044, 1e-6);
  EXPECT_NEAR(StudentPower(0, 7, 0.01), 0.01, 1e-6);
}

TEST(StudentPowerTest, NumberOfSeedsInvertsIt) {
  EXPECT_EQ(SeedsToDetect(0.5, 0.05), 34);
  EXPECT_EQ(SeedsToDetect(-0.5, 0.05), 34);
  EXPECT_EQ(SeedsToDetect(0, 0.05), 0);
  EXPECT_EQ(SeedsToDetect(1e-4, 0.05), 0);
}

}  // namespace
}  // namespace plumb
