#include "cli/compare/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace plumb::cli {
namespace {

// The continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method, which
// converges fast for x < (a + 1) / (a + b + 2).
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto safe = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / safe(1 - (a + b) * x / (a + 1));
  double value = d;
  for (int m = 1; m < 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / safe(1 + even * d);
    c = safe(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / safe(1 + odd * d);
    c = safe(1 + odd / c);
    value *= d * c;
    if (std::abs(d * c - 1) < 1e-16) break;
  }
  return value;
}

// I_x(a, b).
double RegularizedBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  // lgamma_r and not std::lgamma, which writes a global.
  int sign = 0;
  const double log_front = lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign) +
                           a * std::log(x) + b * std::log1p(-x);
  const double front = std::exp(log_front);
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1 - front * BetaFraction(b, a, 1 - x) / b;
}

// P(T > t) for t >= 0.
double StudentUpperTail(double t, double df) {
  return 0.5 * RegularizedBeta(df / 2, 0.5, df / (df + t * t));
}

double Mean(std::vector<double>::const_iterator first, std::vector<double>::const_iterator last) {
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

}  // namespace

MeanAndSd Summarize(const std::vector<double>& values) {
  MeanAndSd summary{static_cast<int64_t>(values.size()), kNaN, kNaN};
  if (values.empty()) return summary;
  summary.mean = Mean(values.begin(), values.end());
  if (values.size() < 2) return summary;
  double squares = 0;
  for (double value : values) squares += (value - summary.mean) * (value - summary.mean);
  summary.sd = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return summary;
}

double StudentQuantile(double p, int64_t df) {
  if (p < 0.5) return -StudentQuantile(1 - p, df);
  const double tail = 1 - p, degrees = static_cast<double>(df);
  double low = 0, high = 1;
  while (StudentUpperTail(high, degrees) > tail && high < 1e300) high *= 2;
  // Halving until neighbours: the tail falls strictly, so nothing can go wrong.
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = (low + high) / 2;
    (StudentUpperTail(middle, degrees) > tail ? low : high) = middle;
  }
  return (low + high) / 2;
}

Interval ConfidenceInterval95(const std::vector<double>& values) {
  const MeanAndSd summary = Summarize(values);
  Interval interval{summary.n, summary.mean, kNaN, kNaN};
  if (summary.n < 2) return interval;
  const double half = StudentQuantile(0.975, summary.n - 1) * summary.sd /
                      std::sqrt(static_cast<double>(summary.n));
  interval.low = summary.mean - half;
  interval.high = summary.mean + half;
  return interval;
}

LossFigures FiguresOf(const std::vector<double>& losses) {
  const auto at_most = [&losses](size_t n) {
    return static_cast<std::ptrdiff_t>(std::min(n, losses.size()));
  };
  LossFigures figures;
  figures.first_50 = Mean(losses.begin(), losses.begin() + at_most(50));
  figures.last_100 = Mean(losses.end() - at_most(kLastSteps), losses.end());
  figures.max_first_20 = *std::max_element(losses.begin(), losses.begin() + at_most(20));
  figures.min = *std::min_element(losses.begin(), losses.end());
  return figures;
}

bool IsCollapsed(double last_100, double unigram_entropy) {
  return last_100 >= 0.99 * unigram_entropy;
}

}  // namespace plumb::cli
