// SPDX-License-Identifier: Apache-2.0
// StudyResults: the records of all runs of a plan and the statistics of its groups. A value.
#ifndef PLUMB_RUNTIME_STUDY_RESULTS_H_
#define PLUMB_RUNTIME_STUDY_RESULTS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/study/comparison.h"
#include "runtime/study/plan.h"
#include "runtime/study/run_record.h"
#include "runtime/study/statistics.h"

namespace plumb {

// Returns true if a model has learned no more than token frequencies: the mean of its last 100
// losses, or of the second half of fewer than 200, is at least 99 % of the unigram entropy of the
// targets of the last 100 steps. The first losses of a short run are those of an untrained model.
bool IsCollapsed(const std::vector<double>& losses, double unigram_entropy);

// Figures of a run or a group, in the order of the table's columns.
enum Metric { kFirst50, kLast100, kMaxOfFirst20, kMin, kValidation, kMetrics };
extern const char* const kMetricNames[kMetrics];  // "first 50" ...

struct RunFigures {
  std::optional<double> metric[kMetrics];  // nullopt unless the run finished
  bool collapsed = false;
};

// Statistics over the finished runs of a group.
struct GroupFigures {
  int64_t runs = 0;  // that ended: finished and diverged ones
  int64_t finished = 0, collapsed = 0;
  int64_t interrupted = 0;           // not among `runs` and not part of any other figure
  int64_t spikes = 0, survived = 0;  // over all runs; `survived`: non-fatal divergences
  std::vector<size_t> diverged;      // indices of the runs that diverged
  MeanAndSd metric[kMetrics], seconds, tokens_per_second;
  double unigram_entropy = 0;  // over the targets of the last 100 steps; mean over all its runs
};

// Comparison of the models, each in the cell that is best for it.
struct BestSettings {
  // Index of each model's cell: the one with the fewest diverged runs, and among these with the
  // lowest mean of the judged metric, over the first `chosen_with` seeds of the study.
  std::vector<size_t> cells;
  size_t chosen_with = 0;
  // Differences of each model's choosing loss with the next lower and the next higher value from
  // that in its best cell, in nats: they show how flat the optimum is. Infinite if more runs
  // diverge there; NaN at an edge of the grid. Empty unless the only setting is a number.
  std::vector<std::array<double, 2>> neighbours;
  Comparison comparison;  // over the other seeds
};

struct StudyResults {
  std::vector<RunRecord> records;  // parallel to plan.runs
  std::vector<RunFigures> runs;
  std::vector<GroupFigures> groups;
  Metric judged = kLast100;  // kValidation if every group has a validation split
  // Outcomes of the groups by the judged metric, over seeds that are the same for all: those that
  // choose, if the others are trained in the best cells alone.
  std::vector<ModelOutcome> outcomes;
  // comparisons[metric][cell]; empty for kMin and for metrics that no run has. The p-values of all
  // cells are adjusted together.
  std::vector<Comparison> comparisons[kMetrics];
  // Mean over cells and seeds of each model's rank by the judged metric (MeanRanks).
  std::vector<double> mean_ranks;
  // Places of the models in the decisive comparison (BootstrapPlaces); empty without one.
  std::vector<std::optional<Places>> places;
  std::optional<BestSettings> best;  // if there are several cells and at least two seeds

  // Returns the different kinds of matrix products of the runs (RunRecord::products), sorted.
  std::vector<std::string> Products() const;
  // Returns the comparison from which the study concludes: of the best settings, or of the only
  // cell; null for several cells and one seed.
  const Comparison* Decisive() const;
};

// Reads all run directories. Errors: a run directory is damaged.
absl::StatusOr<StudyResults> CollectResults(const StudyPlan& plan);
// Does the same for the seeds that choose, and returns the best cell of each model. Requires: two
// cells and two seeds.
absl::StatusOr<std::vector<size_t>> ChooseCells(const StudyPlan& plan);

// Returns the probes of the runs of a group that have some.
std::vector<const RunProbes*> ProbesOfGroup(const StudyPlan& plan, const StudyResults& results,
                                            size_t group);

// Fails if a model has runs to compare in several settings, and none with the seeds that choose its
// setting.
absl::Status CheckChosen(const StudyPlan& plan, const StudyResults& results);

// Computes the results from records that were already read.
StudyResults EvaluateStudy(const StudyPlan& plan, std::vector<RunRecord> records);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_RESULTS_H_
