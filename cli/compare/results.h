// SPDX-License-Identifier: Apache-2.0
// StudyResults: the records of all runs of a plan, and the statistics of its groups. A value.
#ifndef PLUMB_CLI_COMPARE_RESULTS_H_
#define PLUMB_CLI_COMPARE_RESULTS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "cli/compare/run_record.h"

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

// Figures of a training's losses, one a step. Means are over fewer steps where there are fewer.
// REQUIRES: losses is not empty.
struct LossFigures {
  double first_50 = 0, last_100 = 0, max_first_20 = 0, min = 0;
};
LossFigures FiguresOf(const std::vector<double>& losses);

// Returns true if a training has learned no more than how often each token occurs: the mean of its
// last 100 losses is within 1 % of the unigram entropy of what those steps had to predict, or
// above.
bool IsCollapsed(double last_100, double unigram_entropy);

// The figures of a run or a group, in the order of the table's columns.
enum Metric { kFirst50, kLast100, kMaxOfFirst20, kMin, kValidation, kMetrics };
extern const char* const kMetricNames[kMetrics];  // "first 50" ...

struct RunFigures {
  std::optional<double> metric[kMetrics];  // absent of a run that diverged
  bool collapsed = false;
};

// Over the runs of a group that finished.
struct GroupFigures {
  int64_t runs = 0, finished = 0, collapsed = 0;
  int64_t spikes = 0, survived = 0;  // of all its runs; divergences that did not end them
  std::vector<size_t> diverged;      // indices of runs
  MeanAndSd metric[kMetrics], tokens_per_second;
  double unigram_entropy = 0;  // of the tokens of the last 100 steps, mean over all its runs
};

// The differences group - against of a metric, over the seeds with which both finished.
struct PairedDifference {
  size_t group = 0, against = 0;
  Metric metric = kLast100;
  Interval interval;
};

struct StudyResults {
  std::vector<RunRecord> records;  // as plan.runs
  std::vector<RunFigures> runs;
  std::vector<GroupFigures> groups;
  std::vector<PairedDifference> paired;  // of every group but the first against the first
};

// Reads all run directories. Errors: one that is damaged.
absl::StatusOr<StudyResults> CollectResults(const Plan& plan);

// The same of records that were read.
StudyResults Evaluate(const Plan& plan, std::vector<RunRecord> records);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RESULTS_H_
