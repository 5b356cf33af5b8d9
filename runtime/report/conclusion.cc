// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/conclusion.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/text_format.h"

namespace plumb {
namespace {

// Metrics whose differences are reported, without the judged one.
constexpr Metric kOtherMetrics[] = {kLast100, kFirst50, kMaxOfFirst20, kValidation};

std::vector<std::string> ModelNames(const StudyPlan& plan) {
  std::vector<std::string> names;
  for (const PlanModel& model : plan.models) names.push_back(model.name);
  return names;
}

std::string LossText(const MeanAndSd& loss) {
  std::string text = absl::StrFormat("%.3f", loss.mean);
  if (loss.n > 1) absl::StrAppendFormat(&text, " ± %.3f", loss.sd);
  return text;
}

// Returns the conclusion about the only model of a study.
std::string ConclusionOfOne(const StudyPlan& plan, const StudyResults& results) {
  const ModelOutcome& model = results.Decisive()->models[0];
  const std::string failures = FailureText(model);
  const std::string loss =
      absl::StrCat(" is ", LossText(model.loss), " (", kMetricNames[results.judged],
                   failures.empty() ? "" : ", ", failures, ")");
  if (!results.best) return absl::StrCat("The loss at the end", loss, ".");
  return absl::StrCat("The best setting is ", CellName(plan.cells[results.best->cells[0]]),
                      ", whose loss over the other seeds", loss, ".");
}

// Returns the conclusion of runs of which none has finished.
std::string WithoutEnd(const StudyResults& results) {
  int64_t diverged = 0, interrupted = 0;
  for (const GroupFigures& group : results.groups) {
    diverged += static_cast<int64_t>(group.diverged.size());
    interrupted += group.interrupted;
  }
  if (interrupted == 0) return "Every run diverged: there is no end to compare.";
  return absl::StrCat("No run has finished: ", Count(interrupted, "run"),
                      interrupted == 1 ? " has" : " have", " not reached the last step",
                      diverged == 0 ? "" : absl::StrCat(", and ", diverged, " diverged"), ".");
}

// Returns a warning of models whose best setting is the lowest or the highest that they were
// trained with, so that a better one may be beyond it; "" without them.
std::string EdgeText(const StudyPlan& plan, const BestSettings& best) {
  std::vector<std::string> names;
  for (size_t model = 0; model < best.neighbours.size(); ++model) {
    const auto& [lower, higher] = best.neighbours[model];
    // A model without both was trained with one setting.
    if (std::isnan(lower) != std::isnan(higher)) {
      names.push_back(absl::StrCat(kNameMark, plan.models[model].name, kNameMark));
    }
  }
  if (names.empty()) return "";
  constexpr size_t kNamed = 3;
  const std::string more =
      names.size() > kNamed ? absl::StrCat(" and ", names.size() - kNamed, " more") : "";
  names.resize(std::min(kNamed, names.size()));
  return absl::StrCat(" The best setting is at the edge of the grid for ",
                      absl::StrJoin(names, ", "), more, ": a wider grid may have a better one.");
}

}  // namespace

std::vector<GroupPair> ReportedPairs(const StudyPlan& plan, const StudyResults& results) {
  std::vector<GroupPair> pairs;
  const auto add = [&](Metric metric, bool all) {
    const std::vector<Comparison>& cells = results.comparisons[metric];
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      for (const PairedDifference& pair : cells[cell].pairs) {
        if (!all && pair.a != 0) continue;
        pairs.push_back({metric, cell, pair.b * plan.cells.size() + cell,
                         pair.a * plan.cells.size() + cell, &pair});
      }
    }
  };
  add(results.judged, /*all=*/true);
  for (Metric metric : kOtherMetrics) {
    if (metric != results.judged) add(metric, /*all=*/false);
  }
  return pairs;
}

std::string ConclusionWithMarks(const StudyPlan& plan, const StudyResults& results) {
  if (plan.runs.empty()) return "There are no runs in this comparison.";
  if (results.comparisons[results.judged].empty()) return WithoutEnd(results);
  const Comparison* const decisive = results.Decisive();
  if (decisive != nullptr && plan.models.size() == 1 && decisive->models[0].loss.n > 0) {
    return ConclusionOfOne(plan, results);
  }
  if (decisive == nullptr) {
    return "With one seed, nobody can choose the best setting of a model by one run and judge it "
           "by "
           "another; the table has every cell.";
  }
  std::string text;
  if (results.best) {
    absl::StrAppend(&text, "Each model is at its best setting, chosen by the first ",
                    results.best->chosen_with, " of ",
                    Count(static_cast<int64_t>(plan.seeds.size()), "seed"), ". ");
  }
  absl::StrAppend(&text, VerdictText(*decisive, ModelNames(plan), [&](int64_t judging) {
    // The seeds that choose come on top.
    if (!results.best) return judging;
    return plan.chooses() ? judging + plan.study.choosing_seeds() : 2 * judging - 1;
  }));
  if (results.best) absl::StrAppend(&text, EdgeText(plan, *results.best));
  const bool has_two_seeds =
      std::any_of(decisive->pairs.begin(), decisive->pairs.end(), [](const PairedDifference& pair) {
        return pair.interval.n == 2 && !std::isnan(pair.interval.low);
      });
  if (has_two_seeds) {
    absl::StrAppend(&text,
                    " Intervals from two seeds are 12.7 standard errors wide on each side, "
                    "and depend on the two runs not being unusually close to each other.");
  }
  return text;
}

std::string Conclusion(const StudyPlan& plan, const StudyResults& results) {
  return absl::StrReplaceAll(ConclusionWithMarks(plan, results), {{kNameMark, ""}});
}

std::string StudyTitle(const StudyPlan& plan, const StudyResults& results) {
  if (!plan.study.title().empty()) return plan.study.title();
  constexpr size_t kNamed = 4;
  const bool is_cut = plan.models.size() > kNamed;
  const Comparison* const decisive = results.Decisive();
  std::vector<std::string> names = ModelNames(plan);
  if (is_cut && decisive != nullptr) {
    names.clear();
    for (const size_t model : decisive->Ranked()) names.push_back(plan.models[model].name);
  }
  names.resize(std::min(kNamed, names.size()));
  return absl::StrCat(absl::StrJoin(names, ", "), is_cut ? ", …" : "");
}

}  // namespace plumb
