// SPDX-License-Identifier: Apache-2.0
// Statistics of paired runs: Student's t and its power, tests without assumptions about the losses,
// equivalence, and corrections for several comparisons. Pure functions.
#ifndef PLUMB_RUNTIME_STUDY_STATISTICS_H_
#define PLUMB_RUNTIME_STUDY_STATISTICS_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace plumb {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();  // no such figure

struct MeanAndSd {
  int64_t n = 0;
  double mean = 0;  // NaN if n = 0
  double sd = 0;    // sample standard deviation (n - 1); NaN if n < 2
};
MeanAndSd Summarize(const std::vector<double>& values);

// Returns the x with P(T <= x) = p for Student's t with `df` degrees of freedom. Requires: df >= 1,
// 0 < p < 1.
double StudentQuantile(double p, int64_t df);

struct Interval {
  int64_t n = 0;
  double mean = 0, low = 0, high = 0;  // NaN if n is 0; the bounds also if all values are equal
};
// Returns the mean of values with this summary and the 95 % confidence interval of the true mean,
// from Student's t with n - 1 degrees of freedom.
Interval ConfidenceInterval95(const MeanAndSd& summary);

// Returns the two-sided p-value of Student's paired t-test: the probability of a mean at least as
// far from 0 if the true mean is 0. NaN for fewer than two differences; 1 if all are 0, and NaN if
// all are the same other number: a standard deviation of 0 is no estimate of their spread.
double StudentPValue(const std::vector<double>& differences);

// Returns the two-sided p-value of the sign-flip permutation test (Fisher 1935): the share of all
// assignments of signs to the differences whose sum is at least as far from 0. It assumes symmetry
// and not normality. Exact for up to 20 differences; beyond, 100,000 random assignments, the same
// in every call. NaN without differences. Its min is 2 / 2^n: six differences are needed for 0.05.
double SignFlipPValue(const std::vector<double>& differences);

// Returns the two-sided p-value of the exact sign test (Arbuthnot 1710): the probability that of as
// many fair coins at least as many agree as the larger of both numbers. 1 without any.
double SignPValue(int64_t lower, int64_t higher);

// Returns the p-value of two one-sided t-tests (Schuirmann 1987): small values say that the true
// mean is within `margin` of 0. NaN if StudentPValue has no value or all differences are 0, for
// which a standard deviation is no estimate either. Requires: margin > 0.
double EquivalencePValue(const std::vector<double>& differences, double margin);

// Returns p-values adjusted by Holm's method (1979), in the order of `p`: rejecting those below
// 0.05 keeps the probability of any false claim among all of them below 0.05. NaN stays NaN and
// does not count.
std::vector<double> HolmAdjusted(const std::vector<double>& p);

// Returns the probability that a paired t-test of `n` seeds has a p-value below `level` if the true
// difference is `effect` standard deviations of the differences (noncentral t). Requires: n >= 2,
// 0 < level < 1.
double StudentPower(double effect, int64_t n, double level);

// Returns the number of seeds with which such a test detects `effect` with a probability of 0.8; 0
// if they are more than 10,000, also for effect 0.
int64_t SeedsToDetect(double effect, double level);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_STATISTICS_H_
