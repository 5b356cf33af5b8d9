// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/tables.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/app/study/conclusion.h"
#include "runtime/base/text_format.h"

namespace plumb {
namespace {

// Max number of models of which tables for people list all pairs.
constexpr size_t kMaxModelsOfPairs = 8;

Cell TextCell(std::string text) { return {std::move(text), kNaN, kNaN}; }
Cell CountCell(int64_t n) { return {WithCommas(n), static_cast<double>(n), kNaN}; }

Cell MemoryCell(int64_t bytes) { return {Bytes(bytes), static_cast<double>(bytes), kNaN}; }

// Formats with three digits and a power of thousand: "24.1 k".
Cell FlopsCell(double flops) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  double value = flops;
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return {absl::StrFormat("%.3g%s", value, kUnits[unit]), flops, kNaN};
}

Cell MeanCell(const MeanAndSd& summary, int digits) {
  if (summary.n == 0) return TextCell("–");
  std::string text = absl::StrFormat("%.*f", digits, summary.mean);
  if (summary.n > 1) absl::StrAppendFormat(&text, " ± %.*f", digits, summary.sd);
  return {text, summary.mean, summary.sd};
}

Cell DivergedCell(const StudyPlan& plan, const StudyResults& results, const GroupFigures& group) {
  Cell cell = CountCell(static_cast<int64_t>(group.diverged.size()));
  if (group.diverged.empty()) return cell;
  std::vector<std::string> runs;
  constexpr size_t kNamed = 3;
  for (size_t i = 0; i < std::min(kNamed, group.diverged.size()); ++i) {
    const size_t run = group.diverged[i];
    runs.push_back(
        absl::StrCat("seed ", plan.runs[run].seed, " at step ", results.records[run].result.step));
  }
  if (group.diverged.size() > kNamed) runs.push_back("…");
  absl::StrAppend(&cell.text, " (", absl::StrJoin(runs, ", "), ")");
  return cell;
}

// Formats a p-value with three digits.
std::string PText(double p) {
  if (std::isnan(p)) return "–";
  return p < 0.001 ? "<0.001" : absl::StrFormat("%.3f", p);
}

std::vector<Cell> DifferenceCells(const PairedDifference& difference) {
  const Interval& interval = difference.interval;
  Cell mean = TextCell("–"), range = TextCell("–");
  if (interval.n > 0) mean.text = absl::StrFormat("%+.3f", interval.mean);
  if (!std::isnan(interval.low))
    range.text = absl::StrFormat("%+.3f to %+.3f", interval.low, interval.high);
  return {mean, range, CountCell(interval.n), TextCell(PText(difference.p_holm)),
          TextCell(PText(difference.p_sign_flip))};
}

std::string MarkdownText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string LatexText(const std::string& text) {
  // A hyphen at the start of a word is a minus.
  const std::string words = absl::StrReplaceAll(absl::StrCat(" ", text), {{" -", " −"}});
  return absl::StrReplaceAll(words.substr(1), {{"\\", "\\textbackslash{}"},
                                               {"&", "\\&"},
                                               {"%", "\\%"},
                                               {"$", "\\$"},
                                               {"#", "\\#"},
                                               {"_", "\\_"},
                                               {"{", "\\{"},
                                               {"}", "\\}"},
                                               {"~", "\\textasciitilde{}"},
                                               {"^", "\\textasciicircum{}"},
                                               {"<", "$<$"},
                                               {">", "$>$"},
                                               {"±", "$\\pm$"},
                                               {"−", "$-$"},
                                               {"–", "--"},
                                               {"…", "\\dots{}"},
                                               {"\n", " "}});
}

}  // namespace

Table SummaryTable(const StudyPlan& plan, const StudyResults& results, bool with_times) {
  Table table;
  const bool is_matched = plan.study.match != StudyMatch::kSteps;
  table.columns = {"model", "parameters"};
  if (!with_times || is_matched) table.columns.push_back("FLOPs/token");
  if (is_matched) table.columns.push_back("steps");
  if (!with_times) table.columns.push_back("memory");
  table.columns.push_back("runs");
  const bool has_validation = !results.comparisons[kValidation].empty();
  table.columns.insert(table.columns.end(), std::begin(kMetricNames), std::end(kMetricNames));
  if (!has_validation) table.columns.pop_back();  // the last metric
  if (with_times) table.columns.insert(table.columns.end(), {"seconds", "tokens/s"});
  const auto any = [&results](int64_t GroupFigures::*count) {
    return std::any_of(results.groups.begin(), results.groups.end(),
                       [count](const GroupFigures& group) { return group.*count > 0; });
  };
  const bool has_spikes = any(&GroupFigures::spikes), has_survived = any(&GroupFigures::survived);
  if (has_spikes) table.columns.push_back("spikes");
  if (has_survived) table.columns.push_back("survived");
  table.columns.insert(table.columns.end(), {"diverged", "collapsed"});
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const GroupFigures& group = results.groups[i];
    const PlanGroup& planned = plan.groups[i];
    if (group.runs == 0) continue;
    std::vector<Cell> row = {TextCell(planned.name), CountCell(planned.parameters)};
    if (!with_times || is_matched) row.push_back(FlopsCell(planned.flops_per_token));
    if (is_matched) row.push_back(CountCell(planned.training.max_steps));
    if (!with_times) row.push_back(MemoryCell(planned.memory.total));
    row.push_back(CountCell(group.runs));
    for (int m = 0; m < kMetrics; ++m) {
      if (m != kValidation || has_validation) row.push_back(MeanCell(group.metric[m], 3));
    }
    if (with_times) {
      row.push_back(MeanCell(group.seconds, group.seconds.mean < 10 ? 2 : 0));
      row.push_back(MeanCell(group.tokens_per_second, 0));
    }
    if (has_spikes) row.push_back(CountCell(group.spikes));
    if (has_survived) row.push_back(CountCell(group.survived));
    row.push_back(DivergedCell(plan, results, group));
    row.push_back(CountCell(group.collapsed));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table PairedTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = {"difference", "metric",   "mean",     "95 % interval",
                   "seeds",      "p (Holm)", "p (signs)"};
  for (const GroupPair& pair : ReportedPairs(plan, results)) {
    if (plan.models.size() > kMaxModelsOfPairs && pair.difference->a != 0) continue;
    std::string name = absl::StrCat(plan.models[pair.difference->b].name, " − ",
                                    plan.models[pair.difference->a].name);
    if (!plan.cells[pair.cell].empty()) {
      absl::StrAppend(&name, ", ", CellName(plan.cells[pair.cell]));
    }
    std::vector<Cell> row = {TextCell(std::move(name)), TextCell(kMetricNames[pair.metric])};
    for (Cell& cell : DifferenceCells(*pair.difference)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table BestTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = {"model", "best setting", kMetricNames[results.judged], "seeds", "mean rank"};
  const BestSettings& best = *results.best;
  for (size_t model : Judge(best.comparison).ranked) {
    const MeanAndSd& loss = best.comparison.models[model];
    table.rows.push_back({TextCell(plan.models[model].name),
                          TextCell(CellName(plan.cells[best.cells[model]])), MeanCell(loss, 3),
                          CountCell(loss.n),
                          TextCell(absl::StrFormat("%.1f", results.mean_ranks[model]))});
  }
  return table;
}

Table BestPairedTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = {
      "difference at best settings", "mean", "95 % interval", "seeds", "p (Holm)", "p (signs)"};
  for (const PairedDifference& pair : results.best->comparison.pairs) {
    if (plan.models.size() > kMaxModelsOfPairs && pair.a != 0) continue;
    std::vector<Cell> row = {
        TextCell(absl::StrCat(plan.models[pair.b].name, " − ", plan.models[pair.a].name))};
    for (Cell& cell : DifferenceCells(pair)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string ToMarkdown(const Table& table) {
  std::string text = absl::StrCat("| ", absl::StrJoin(table.columns, " | "), " |\n|");
  for (size_t i = 0; i < table.columns.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "---|" : "---:|");
  for (const auto& row : table.rows) {
    absl::StrAppend(&text, "\n|");
    for (const Cell& cell : row) absl::StrAppend(&text, " ", MarkdownText(cell.text), " |");
  }
  return text + "\n";
}

std::string ToText(const Table& table) {
  std::vector<std::vector<std::string>> rows = {table.columns};
  for (const auto& row : table.rows) {
    rows.emplace_back();
    for (const Cell& cell : row) rows.back().push_back(cell.text);
  }
  // The first column is text, all others are numbers.
  return AlignColumns(rows, "l" + std::string(table.columns.size() - 1, 'r'), "");
}

std::string ToLatex(const Table& table) {
  std::string text = absl::StrCat("\\begin{tabular}{l", std::string(table.columns.size() - 1, 'r'),
                                  "}\n\\toprule\n");
  const auto add_row = [&text](const std::vector<std::string>& cells) {
    absl::StrAppend(&text, absl::StrJoin(cells, " & "), " \\\\\n");
  };
  std::vector<std::string> cells;
  for (const std::string& column : table.columns) cells.push_back(LatexText(column));
  add_row(cells);
  absl::StrAppend(&text, "\\midrule\n");
  for (const auto& row : table.rows) {
    cells.clear();
    for (const Cell& cell : row) cells.push_back(LatexText(cell.text));
    add_row(cells);
  }
  return absl::StrCat(text, "\\bottomrule\n\\end{tabular}\n");
}

}  // namespace plumb
