// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "runtime/base/rng.h"

namespace plumb {
namespace {

// Evaluates the continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's
// method, which converges fast for x < (a + 1) / (a + b + 2).
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

// Returns the regularized incomplete beta function I_x(a, b).
double RegularizedBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  // lgamma_r, because std::lgamma writes a global variable.
  int sign = 0;
  const double log_front = lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign) +
                           a * std::log(x) + b * std::log1p(-x);
  const double front = std::exp(log_front);
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1 - front * BetaFraction(b, a, 1 - x) / b;
}

// Returns P(T > t).
double StudentUpperTail(double t, double df) {
  const double tail = 0.5 * RegularizedBeta(df / 2, 0.5, df / (df + t * t));
  return t < 0 ? 1 - tail : tail;
}

// Returns P(Z <= z) of the standard normal distribution.
double NormalCdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// Probability with which a test is planned to detect a difference.
constexpr double kPlannedPower = 0.8;
constexpr int64_t kMaxPlannedSeeds = 10000;

constexpr size_t kMaxExactFlips = 20;  // differences, for 2^20 assignments of signs
constexpr int64_t kRandomFlips = 100000;

// Returns false for fewer than two values, and for values that are equal except for rounding:
// Student's t divides by their standard deviation.
bool HasSpread(const MeanAndSd& summary) { return summary.sd > 1e-9 * std::abs(summary.mean); }

}  // namespace

MeanAndSd Summarize(const std::vector<double>& values) {
  MeanAndSd summary{static_cast<int64_t>(values.size()), kNaN, kNaN};
  if (values.empty()) return summary;
  summary.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
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
  // Bisection down to neighbouring doubles; it is safe because the tail is strictly decreasing.
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = (low + high) / 2;
    (StudentUpperTail(middle, degrees) > tail ? low : high) = middle;
  }
  return (low + high) / 2;
}

Interval ConfidenceInterval95(const MeanAndSd& summary) {
  Interval interval{summary.n, summary.mean, kNaN, kNaN};
  if (!HasSpread(summary)) return interval;
  const double half = StudentQuantile(0.975, summary.n - 1) * summary.sd /
                      std::sqrt(static_cast<double>(summary.n));
  interval.low = summary.mean - half;
  interval.high = summary.mean + half;
  return interval;
}

double StudentPValue(const std::vector<double>& differences) {
  const MeanAndSd summary = Summarize(differences);
  if (summary.n > 1 && summary.mean == 0) return 1;
  if (!HasSpread(summary)) return kNaN;
  const double error = summary.sd / std::sqrt(static_cast<double>(summary.n));
  return 2 * StudentUpperTail(std::abs(summary.mean) / error, static_cast<double>(summary.n - 1));
}

double SignFlipPValue(const std::vector<double>& differences) {
  const size_t n = differences.size();
  if (n == 0) return kNaN;
  double sum = 0, size = 0;
  for (double difference : differences) {
    sum += difference;
    size += std::abs(difference);
  }
  if (std::isnan(sum)) return kNaN;
  // Sums in another order differ by rounding, and must count as equal.
  const double threshold = std::abs(sum) - 1e-9 * size;
  if (n <= kMaxExactFlips) {
    // A sum and its negation belong to opposite assignments, so the last sign stays positive. Gray
    // code changes one sign at a time.
    const uint64_t assignments = uint64_t{1} << (n - 1);
    std::vector<double> signed_differences = differences;
    double flipped = sum;
    uint64_t as_far = 0;
    for (uint64_t i = 0;; ++i) {
      if (std::abs(flipped) >= threshold) ++as_far;
      if (i + 1 == assignments) break;
      size_t bit = 0;
      while (((i + 1) >> bit & 1) == 0) ++bit;
      signed_differences[bit] = -signed_differences[bit];
      flipped += 2 * signed_differences[bit];
    }
    return static_cast<double>(as_far) / static_cast<double>(assignments);
  }
  // Sums of eight differences each, by the bits of their signs.
  std::vector<std::array<double, 256>> sums((n + 7) / 8);
  for (size_t bits = 0; bits < 256; ++bits) {
    for (size_t i = 0; i < n; ++i) {
      sums[i / 8][bits] += (bits >> (i % 8) & 1) != 0 ? differences[i] : -differences[i];
    }
  }
  const RngStream stream(1, "sign flips");
  const size_t words = (n + 63) / 64;
  int64_t as_far = 0;
  for (int64_t draw = 0; draw < kRandomFlips; ++draw) {
    double flipped = 0;
    for (size_t word = 0; word < words; ++word) {
      uint64_t bits = stream.Bits(static_cast<uint64_t>(draw) * words + word);
      for (size_t i = word * 8; i < std::min(sums.size(), word * 8 + 8); ++i, bits >>= 8) {
        flipped += sums[i][bits & 255];
      }
    }
    if (std::abs(flipped) >= threshold) ++as_far;
  }
  // The observed assignment counts as one more draw, so that p is never 0.
  return static_cast<double>(as_far + 1) / static_cast<double>(kRandomFlips + 1);
}

double SignPValue(int64_t lower, int64_t higher) {
  // At least k of n coins agree with probability I_1/2(k, n - k + 1).
  const auto larger = static_cast<double>(std::max(lower, higher));
  const auto smaller = static_cast<double>(std::min(lower, higher));
  return larger == smaller ? 1 : std::min(1.0, 2 * RegularizedBeta(larger, smaller + 1, 0.5));
}

double EquivalencePValue(const std::vector<double>& differences, double margin) {
  const MeanAndSd summary = Summarize(differences);
  if (!HasSpread(summary)) return kNaN;
  const double error = summary.sd / std::sqrt(static_cast<double>(summary.n));
  return StudentUpperTail((margin - std::abs(summary.mean)) / error,
                          static_cast<double>(summary.n - 1));
}

std::vector<double> HolmAdjusted(const std::vector<double>& p) {
  std::vector<size_t> order;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!std::isnan(p[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&p](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted = p;
  double largest = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    const double factor = static_cast<double>(order.size() - k);
    largest = std::max(largest, std::min(1.0, factor * p[order[k]]));
    adjusted[order[k]] = largest;
  }
  return adjusted;
}

double StudentPower(double effect, int64_t n, double level) {
  const double df = static_cast<double>(n - 1);
  const double critical = StudentQuantile(1 - level / 2, n - 1);
  const double shift = effect * std::sqrt(static_cast<double>(n));
  // T = (Z + shift) / s, where df s^2 is chi-squared: integrates P(|T| > critical | s) over the
  // density of s by Simpson's rule. The density is negligible outside of the limits.
  int sign = 0;
  const double log_constant = std::log(2.0) + df / 2 * std::log(df / 2) - lgamma_r(df / 2, &sign);
  const double high = 1 + 12 / std::sqrt(df);
  constexpr int kIntervals = 4000;  // even
  const double step = high / kIntervals;
  double sum = 0;
  for (int i = 1; i <= kIntervals; ++i) {
    const double s = i * step;
    const double density = std::exp(log_constant + (df - 1) * std::log(s) - df * s * s / 2);
    const double claims = NormalCdf(shift - critical * s) + NormalCdf(-shift - critical * s);
    const double weight = i == kIntervals ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * density * claims;
  }
  // At s = 0 the density is 0 except for df = 1, where it is exp(log_constant) and claims is 1 or
  // more precisely P(|Z + shift| > 0).
  if (n == 2) sum += std::exp(log_constant);
  return std::min(1.0, sum * step / 3);
}

int64_t SeedsToDetect(double effect, double level) {
  effect = std::abs(effect);
  if (!(StudentPower(effect, kMaxPlannedSeeds, level) >= kPlannedPower)) return 0;
  int64_t low = 1, high = kMaxPlannedSeeds;  // the power grows with the number of seeds
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (StudentPower(effect, middle, level) < kPlannedPower ? low : high) = middle;
  }
  return high;
}

}  // namespace plumb
