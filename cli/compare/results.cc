// SPDX-License-Identifier: Apache-2.0
#include "cli/compare/results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/output.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

RunFigures FiguresOfRun(const RunRecord& record, double unigram_entropy) {
  RunFigures figures;
  if (record.result.diverged || record.losses.empty()) return figures;
  const LossFigures losses = FiguresOf(record.losses);
  figures.metric[kFirst50] = losses.first_50;
  figures.metric[kLast100] = losses.last_100;
  figures.metric[kMaxOfFirst20] = losses.max_first_20;
  figures.metric[kMin] = losses.min;
  figures.metric[kValidation] = record.result.validation;
  figures.collapsed = IsCollapsed(losses.last_100, unigram_entropy);
  return figures;
}

GroupFigures FiguresOfGroup(const Plan& plan, size_t group, const StudyResults& results) {
  GroupFigures figures;
  std::vector<double> metric[kMetrics], speeds;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.runs[i].group != group) continue;
    ++figures.runs;
    const RunResult& result = results.records[i].result;
    figures.spikes += result.spikes;
    figures.survived += result.skips + result.step_backs;
    if (result.diverged) {
      figures.diverged.push_back(i);
      continue;
    }
    ++figures.finished;
    figures.collapsed += results.runs[i].collapsed ? 1 : 0;
    speeds.push_back(results.records[i].TokensPerSecond());
    for (int m = 0; m < kMetrics; ++m) {
      if (results.runs[i].metric[m]) metric[m].push_back(*results.runs[i].metric[m]);
    }
  }
  for (int m = 0; m < kMetrics; ++m) figures.metric[m] = Summarize(metric[m]);
  figures.unigram_entropy = Summarize(plan.groups[group].unigram_entropies).mean;
  figures.tokens_per_second = Summarize(speeds);
  return figures;
}

// Returns the paired differences. Every group has its runs in the same seed order.
std::vector<double> DifferencesOf(const Plan& plan, size_t group, size_t against, Metric metric,
                                  const StudyResults& results) {
  const size_t seeds = plan.study.seeds.size();
  std::vector<double> differences;
  for (size_t k = 0; k < seeds; ++k) {
    const std::optional<double>& a = results.runs[group * seeds + k].metric[metric];
    const std::optional<double>& b = results.runs[against * seeds + k].metric[metric];
    if (a && b) differences.push_back(*a - *b);
  }
  return differences;
}

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

// Returns P(T > t) for t >= 0.
double StudentUpperTail(double t, double df) {
  return 0.5 * RegularizedBeta(df / 2, 0.5, df / (df + t * t));
}

double Mean(std::vector<double>::const_iterator first, std::vector<double>::const_iterator last) {
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

}  // namespace

const char* const kMetricNames[kMetrics] = {"first 50", "last 100", "max of first 20", "min",
                                            "validation"};

StudyResults Evaluate(const Plan& plan, std::vector<RunRecord> records) {
  StudyResults results;
  results.records = std::move(records);
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    // The runs of a group are in seed order.
    const std::vector<double>& entropies = plan.groups[plan.runs[i].group].unigram_entropies;
    results.runs.push_back(FiguresOfRun(results.records[i], entropies[i % entropies.size()]));
  }
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    results.groups.push_back(FiguresOfGroup(plan, group, results));
  }
  for (Metric metric : {kLast100, kFirst50, kMaxOfFirst20, kValidation}) {
    for (size_t group = 1; group < plan.groups.size(); ++group) {
      const std::vector<double> differences = DifferencesOf(plan, group, 0, metric, results);
      const bool is_measured =
          results.groups[0].metric[metric].n > 0 || results.groups[group].metric[metric].n > 0;
      if (metric == kValidation && !is_measured) continue;
      results.paired.push_back({group, 0, metric, ConfidenceInterval95(differences)});
    }
  }
  return results;
}

absl::StatusOr<StudyResults> CollectResults(const Plan& plan) {
  std::vector<RunRecord> records;
  for (const PlanRun& run : plan.runs) {
    const std::string head = absl::StrCat(
        "\"group\":",
        Json(plan.groups[run.group].name).dump(-1, ' ', false, Json::error_handler_t::replace),
        ",\"seed\":", run.seed);
    PLUMB_ASSIGN_OR_RETURN(RunRecord record, ReadRunRecord(run.directory, head));
    records.push_back(std::move(record));
  }
  return Evaluate(plan, std::move(records));
}

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
  // Bisection down to neighbouring doubles; it is safe because the tail is strictly decreasing.
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
