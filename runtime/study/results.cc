// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/study/study_directory.h"
#include "runtime/train/loss_summary.h"

namespace plumb {
namespace {

RunFigures FiguresOfRun(const RunRecord& record, double unigram_entropy) {
  RunFigures figures;
  if (record.result.status != RunStatus::kFinished || record.losses.empty()) return figures;
  LossSummary losses;
  int64_t step = 0;
  for (const double loss : record.losses) losses.Add(++step, loss, std::nullopt);
  figures.metric[kFirst50] = losses.MeanOfFirst50();
  figures.metric[kLast100] = losses.MeanOfLast100();
  figures.metric[kMaxOfFirst20] = losses.MaxOfFirst20();
  figures.metric[kMin] = losses.Min();
  figures.metric[kValidation] = record.result.validation;
  figures.collapsed = IsCollapsed(record.losses, unigram_entropy);
  return figures;
}

GroupFigures FiguresOfGroup(const StudyPlan& plan, size_t group, const StudyResults& results) {
  GroupFigures figures;
  std::vector<double> metric[kMetrics], seconds, speeds;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.runs[i].group != group || !results.records[i].is_present) continue;
    const RunResult& result = results.records[i].result;
    if (result.status == RunStatus::kInterrupted) {
      ++figures.interrupted;
      continue;
    }
    ++figures.runs;
    figures.spikes += result.spikes;
    figures.survived += result.skips;
    if (result.status == RunStatus::kDiverged) {
      figures.diverged.push_back(i);
      continue;
    }
    ++figures.finished;
    figures.collapsed += results.runs[i].collapsed ? 1 : 0;
    seconds.push_back(results.records[i].seconds);
    speeds.push_back(results.records[i].TokensPerSecond());
    for (int m = 0; m < kMetrics; ++m) {
      if (results.runs[i].metric[m]) metric[m].push_back(*results.runs[i].metric[m]);
    }
  }
  for (int m = 0; m < kMetrics; ++m) figures.metric[m] = Summarize(metric[m]);
  figures.unigram_entropy = Summarize(plan.groups[group].unigram_entropies).mean;
  figures.seconds = Summarize(seconds);
  figures.tokens_per_second = Summarize(speeds);
  return figures;
}

// Reads all run directories.
absl::StatusOr<std::vector<RunRecord>> ReadRecords(const StudyPlan& plan) {
  std::vector<RunRecord> records;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const PlanRun& run = plan.runs[i];
    if (!plan.is_skipped.empty() && plan.is_skipped[i]) {
      records.emplace_back();
      records.back().is_present = false;
      continue;
    }
    PLUMB_RETURN_IF_ERROR(CheckInputs(run));
    PLUMB_ASSIGN_OR_RETURN(RunRecord record, ReadRunRecord(run.directory));
    if (!record.has_result) {
      return absl::DataLossError(absl::StrCat(run.directory,
                                              "/result.json: is not readable; delete ",
                                              run.directory, " to train this run again"));
    }
    records.push_back(std::move(record));
  }
  return records;
}

// Returns true if a run has the metric.
bool IsMeasured(const StudyResults& results, Metric metric) {
  return std::any_of(results.groups.begin(), results.groups.end(),
                     [metric](const GroupFigures& group) { return group.metric[metric].n > 0; });
}

// Evaluates the runs and the groups, and compares nothing.
StudyResults EvaluateRuns(const StudyPlan& plan, std::vector<RunRecord> records) {
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
  const bool has_validation =
      std::all_of(plan.groups.begin(), plan.groups.end(),
                  [](const PlanGroup& group) { return group.training.has_validation; });
  if (has_validation && IsMeasured(results, kValidation)) results.judged = kValidation;
  return results;
}

// Returns the index of a group's run with the k-th seed. The runs of a group are in seed order.
size_t RunIndex(const StudyPlan& plan, size_t group, size_t k) {
  return group * plan.seeds.size() + k;
}

size_t GroupIndex(const StudyPlan& plan, size_t model, size_t cell) {
  return model * plan.cells.size() + cell;
}

// Returns the results of the models, each in its own cell, with the seeds from `first` on.
RunValues ValuesInCells(const StudyPlan& plan, const StudyResults& results,
                        const std::vector<size_t>& cells, Metric metric, size_t first) {
  RunValues values(plan.models.size());
  for (size_t model = 0; model < plan.models.size(); ++model) {
    for (size_t k = first; k < plan.seeds.size(); ++k) {
      const size_t i = RunIndex(plan, GroupIndex(plan, model, cells[model]), k);
      const RunRecord& record = results.records[i];
      std::optional<RunValue> value;
      if (record.is_present && record.result.status == RunStatus::kDiverged) {
        value = RunValue{std::numeric_limits<double>::infinity()};
      } else if (results.runs[i].metric[metric]) {
        value = RunValue{*results.runs[i].metric[metric], results.runs[i].collapsed};
      }
      values[model].push_back(value);
    }
  }
  return values;
}

// Returns the results of the models in each cell, with all seeds.
std::vector<RunValues> ValuesByCell(const StudyPlan& plan, const StudyResults& results,
                                    Metric metric) {
  std::vector<RunValues> values;
  for (size_t cell = 0; cell < plan.cells.size(); ++cell) {
    values.push_back(ValuesInCells(plan, results, std::vector<size_t>(plan.models.size(), cell),
                                   metric, /*first=*/0));
  }
  return values;
}

// Compares the models in each cell.
std::vector<Comparison> CompareCells(const StudyPlan& plan, const StudyResults& results,
                                     Metric metric) {
  std::vector<Comparison> comparisons;
  if (!IsMeasured(results, metric)) return comparisons;
  for (const RunValues& values : ValuesByCell(plan, results, metric)) {
    comparisons.push_back(CompareModels(values, plan.study.margin()));
  }
  AdjustTogether(&comparisons);
  return comparisons;
}

// Returns the number of seeds that choose.
size_t ChoosingSeeds(const StudyPlan& plan) {
  return plan.chooses() ? static_cast<size_t>(plan.study.choosing_seeds()) : plan.seeds.size() / 2;
}

using SeedIndices = std::vector<size_t>;  // in the plan's seeds

SeedIndices FirstSeeds(size_t count) {
  SeedIndices seeds(count);
  std::iota(seeds.begin(), seeds.end(), 0);
  return seeds;
}

// Returns the outcome of a group's runs with some seeds, by the judged metric.
ModelOutcome OutcomeOfGroup(const StudyPlan& plan, const StudyResults& results, size_t group,
                            const SeedIndices& seeds) {
  ModelOutcome outcome;
  std::vector<double> losses;
  for (const size_t k : seeds) {
    const size_t i = RunIndex(plan, group, k);
    const RunRecord& record = results.records[i];
    const bool diverged = record.is_present && record.result.status == RunStatus::kDiverged;
    outcome.diverged += diverged ? 1 : 0;
    outcome.collapsed += results.runs[i].collapsed ? 1 : 0;
    if (const auto& value = results.runs[i].metric[results.judged]) losses.push_back(*value);
  }
  outcome.loss = Summarize(losses);
  return outcome;
}

// Returns the outcomes by which the cells of a model are compared, nullopt for those without a run
// that ended. They are of the seeds that choose, as far as all of these cells have them.
std::vector<std::optional<ModelOutcome>> ChoosingOutcomes(const StudyPlan& plan,
                                                          const StudyResults& results,
                                                          size_t model) {
  SeedIndices seeds = FirstSeeds(ChoosingSeeds(plan)), common;
  std::vector<bool> ended(plan.cells.size());
  for (size_t cell = 0; cell < plan.cells.size(); ++cell) {
    ended[cell] = OutcomeOfGroup(plan, results, GroupIndex(plan, model, cell), seeds).runs() > 0;
  }
  for (const size_t k : seeds) {
    bool everywhere = true;
    for (size_t cell = 0; cell < plan.cells.size(); ++cell) {
      const size_t group = GroupIndex(plan, model, cell);
      everywhere &= !ended[cell] || OutcomeOfGroup(plan, results, group, {k}).runs() > 0;
    }
    if (everywhere) common.push_back(k);
  }
  if (!common.empty()) seeds = std::move(common);
  std::vector<std::optional<ModelOutcome>> outcomes(plan.cells.size());
  for (size_t cell = 0; cell < plan.cells.size(); ++cell) {
    if (!ended[cell]) continue;
    outcomes[cell] = OutcomeOfGroup(plan, results, GroupIndex(plan, model, cell), seeds);
  }
  return outcomes;
}

// Returns true if a cell is better than another: by diverged runs, and then by the mean loss.
bool IsBetterCell(const ModelOutcome& a, const ModelOutcome& b) {
  if (a.diverged != b.diverged) return a.diverged < b.diverged;
  return a.loss.n > 0 && (b.loss.n == 0 || a.loss.mean < b.loss.mean);
}

// Returns the best cell of each model over the seeds that choose.
std::vector<size_t> BestCells(const StudyPlan& plan, const StudyResults& results) {
  std::vector<size_t> best(plan.models.size());
  for (size_t model = 0; model < best.size(); ++model) {
    const std::vector<std::optional<ModelOutcome>> outcomes =
        ChoosingOutcomes(plan, results, model);
    for (size_t cell = 1; cell < plan.cells.size(); ++cell) {
      const std::optional<ModelOutcome>& chosen = outcomes[best[model]];
      if (outcomes[cell] && (!chosen || IsBetterCell(*outcomes[cell], *chosen))) {
        best[model] = cell;
      }
    }
  }
  return best;
}

// Returns the cells in the order of their values if they are numbers of one field; else none.
std::vector<size_t> CellsInOrder(const StudyPlan& plan) {
  std::vector<std::pair<double, size_t>> values;
  for (size_t cell = 0; cell < plan.cells.size(); ++cell) {
    double value;
    if (plan.cells[cell].size() != 1 || !absl::SimpleAtod(plan.cells[cell][0].second, &value)) {
      return {};
    }
    values.emplace_back(value, cell);
  }
  std::sort(values.begin(), values.end());
  std::vector<size_t> cells;
  for (const auto& [value, cell] : values) cells.push_back(cell);
  return cells;
}

// Sets best->neighbours from best->cells.
void CompareWithNextCells(const StudyPlan& plan, const StudyResults& results, BestSettings* best) {
  constexpr double kEdge = std::numeric_limits<double>::quiet_NaN();
  const std::vector<size_t> order = CellsInOrder(plan);
  for (size_t model = 0; model < plan.models.size() && !order.empty(); ++model) {
    const std::vector<std::optional<ModelOutcome>> outcomes =
        ChoosingOutcomes(plan, results, model);
    const auto at = std::find(order.begin(), order.end(), best->cells[model]);
    const std::optional<ModelOutcome>& own = outcomes[*at];
    const auto add = [&](std::vector<size_t>::const_iterator next) {
      const std::optional<ModelOutcome>& other = outcomes[*next];
      if (!own || !other) return kEdge;
      const bool is_comparable = other->diverged == own->diverged && own->loss.n > 0;
      return is_comparable ? other->loss.mean - own->loss.mean
                           : std::numeric_limits<double>::infinity();
    };
    best->neighbours.push_back(
        {at == order.begin() ? kEdge : add(at - 1), at + 1 == order.end() ? kEdge : add(at + 1)});
  }
}

// Chooses the best cell of each model, and compares the models in them.
void CompareBestSettings(const StudyPlan& plan, StudyResults* results) {
  BestSettings& best = results->best.emplace();
  best.chosen_with = ChoosingSeeds(plan);
  best.cells = BestCells(plan, *results);
  CompareWithNextCells(plan, *results, &best);
  const RunValues values =
      ValuesInCells(plan, *results, best.cells, results->judged, best.chosen_with);
  best.comparison = CompareModels(values, plan.study.margin());
  results->places = BootstrapPlaces(values);
}

}  // namespace

const char* const kMetricNames[kMetrics] = {"first 50", "last 100", "max of first 20", "min",
                                            "validation"};

StudyResults EvaluateStudy(const StudyPlan& plan, std::vector<RunRecord> records) {
  StudyResults results = EvaluateRuns(plan, std::move(records));
  for (Metric metric : {kFirst50, kLast100, kMaxOfFirst20, kValidation}) {
    results.comparisons[metric] = CompareCells(plan, results, metric);
  }
  const SeedIndices seeds = FirstSeeds(plan.chooses() ? ChoosingSeeds(plan) : plan.seeds.size());
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    results.outcomes.push_back(OutcomeOfGroup(plan, results, group, seeds));
  }
  const std::vector<RunValues> values = ValuesByCell(plan, results, results.judged);
  results.mean_ranks = MeanRanks(values);
  if (values.size() == 1) {
    results.places = BootstrapPlaces(values.front());
  } else if (values.size() > 1 && plan.seeds.size() > 1) {
    CompareBestSettings(plan, &results);
  }
  return results;
}

absl::Status CheckChosen(const StudyPlan& plan, const StudyResults& results) {
  if (!results.best) return absl::OkStatus();
  SeedIndices others(plan.seeds.size() - results.best->chosen_with);
  std::iota(others.begin(), others.end(), results.best->chosen_with);
  for (size_t model = 0; model < plan.models.size(); ++model) {
    bool is_chosen = false, is_compared = false;
    const auto choosing = ChoosingOutcomes(plan, results, model);
    for (size_t cell = 0; cell < plan.cells.size(); ++cell) {
      is_chosen |= choosing[cell].has_value();
      is_compared |=
          OutcomeOfGroup(plan, results, GroupIndex(plan, model, cell), others).runs() > 0;
    }
    if (is_chosen || !is_compared) continue;
    const auto end = plan.seeds.begin() + static_cast<std::ptrdiff_t>(results.best->chosen_with);
    return absl::InvalidArgumentError(absl::StrCat(
        plan.models[model].name, ": has no run with seed ",
        absl::StrJoin(plan.seeds.begin(), end, " or "),
        ", and these choose the setting of each model; train it with them, or name only runs with "
        "the seeds that all models have"));
  }
  return absl::OkStatus();
}

std::vector<std::string> StudyResults::Products() const {
  std::set<std::string> products;
  for (const RunRecord& record : records) {
    if (!record.products.empty()) products.insert(record.products);
  }
  return {products.begin(), products.end()};
}

const Comparison* StudyResults::Decisive() const {
  if (best) return &best->comparison;
  return comparisons[judged].size() == 1 ? &comparisons[judged].front() : nullptr;
}

absl::StatusOr<StudyResults> CollectResults(const StudyPlan& plan) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<RunRecord> records, ReadRecords(plan));
  return EvaluateStudy(plan, std::move(records));
}

absl::StatusOr<std::vector<size_t>> ChooseCells(const StudyPlan& plan) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<RunRecord> records, ReadRecords(plan));
  return BestCells(plan, EvaluateRuns(plan, std::move(records)));
}

std::vector<const RunProbes*> ProbesOfGroup(const StudyPlan& plan, const StudyResults& results,
                                            size_t group) {
  std::vector<const RunProbes*> probes;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const std::optional<RunProbes>& own = results.records[i].probes;
    if (plan.runs[i].group == group && own) probes.push_back(&*own);
  }
  return probes;
}

bool IsCollapsed(const std::vector<double>& losses, double unigram_entropy) {
  const size_t last = std::min<size_t>(LossSummary::kLastSteps, (losses.size() + 1) / 2);
  const double sum =
      std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(last), losses.end(), 0.0);
  return sum / static_cast<double>(last) >= 0.99 * unigram_entropy;
}

}  // namespace plumb
