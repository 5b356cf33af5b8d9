// Statistics of runs: means with standard deviations, paired differences with confidence intervals,
// and the figures of one training. Pure functions.
#ifndef PLUMB_CLI_COMPARE_STATISTICS_H_
#define PLUMB_CLI_COMPARE_STATISTICS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace plumb::cli {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();  // there is no such figure

struct MeanAndSd {
  int64_t n = 0;
  double mean = 0;  // NaN of nothing
  double sd = 0;    // of the sample (n - 1); NaN for n < 2
};
MeanAndSd Summarize(const std::vector<double>& values);

// The x with P(T <= x) = p for Student's t with `df` >= 1 degrees of freedom, 0 < p < 1.
double StudentQuantile(double p, int64_t df);

struct Interval {
  int64_t n = 0;
  double mean = 0, low = 0, high = 0;  // NaN where n does not suffice: 1 for the mean, 2 else
};
// The mean of `values`, and the interval that holds the mean behind them with 95 % confidence, by
// Student's t with n - 1 degrees of freedom.
Interval ConfidenceInterval95(const std::vector<double>& values);

inline constexpr int64_t kLastSteps = 100;  // those of last_100

// What is said of a training by its losses, one a step. Means are over fewer steps where there are
// fewer. REQUIRES: losses is not empty.
struct LossFigures {
  double first_50 = 0, last_100 = 0, max_first_20 = 0, min = 0;
};
LossFigures FiguresOf(const std::vector<double>& losses);

// Whether a training has learned no more than how often each token occurs: the mean of its last 100
// losses is within 1 % of the unigram entropy of what those steps had to predict, or above it.
bool IsCollapsed(double last_100, double unigram_entropy);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_STATISTICS_H_
