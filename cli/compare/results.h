// StudyResults: the records of all runs of a plan, and the statistics of its groups. A value.
#ifndef PLUMB_CLI_COMPARE_RESULTS_H_
#define PLUMB_CLI_COMPARE_RESULTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "cli/compare/run_record.h"
#include "cli/compare/statistics.h"

namespace plumb::cli {

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
