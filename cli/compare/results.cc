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
