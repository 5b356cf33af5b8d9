// SPDX-License-Identifier: Apache-2.0
// Tables of a study, and their forms: text, Markdown, LaTeX, CSV.
#ifndef PLUMB_RUNTIME_REPORT_TABLES_H_
#define PLUMB_RUNTIME_REPORT_TABLES_H_

#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"

namespace plumb {

struct Cell {
  std::string text;
  double value = 0, sd = 0;  // NaN: no value
};

// Table whose first column is text, and whose others are numbers.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

// Returns one row per group: each figure as mean ± standard deviation over the finished runs.
// `with_times`: also figures that depend on the speed of the machine.
Table SummaryTable(const StudyPlan& plan, const StudyResults& results, bool with_times);
// Returns the columns of a summary that a page of a paper has room for: the model, its runs, the
// losses at the end and, where a run has failed, the failures.
Table PaperTable(const Table& summary);
// Returns one row per pair of models in a cell: mean difference, its 95 % confidence interval and
// p-values. Of the judged metric these are all pairs, or for more than eight models those with the
// first, as for the other metrics.
Table PairedTable(const StudyPlan& plan, const StudyResults& results);
// Returns one row per model at its best setting, the lowest loss first. Requires: results.best.
Table BestTable(const StudyPlan& plan, const StudyResults& results);
// Returns BestSettings::neighbours of a model as "+0.003, edge".
std::string NeighboursText(const std::array<double, 2>& neighbours);
// Returns the differences between the models at their best settings. Requires: results.best.
Table BestPairedTable(const StudyPlan& plan, const StudyResults& results);

std::string ToText(const Table& table);  // aligned columns, for a terminal
std::string ToMarkdown(const Table& table);
// Returns a text on one line, with its characters that mean something in Markdown or HTML escaped.
std::string MarkdownText(absl::string_view text);
// Returns a tabular environment with the rules of the package booktabs. Characters that pdflatex
// cannot print become escapes such as \u{3b2}.
std::string ToLatex(const Table& table);

std::string TableMarkdown(const StudyPlan& plan, const StudyResults& results);  // table.md
std::string TableCsv(const StudyPlan& plan, const StudyResults& results);       // table.csv
// Returns runs.csv: one row per run, with losses in full precision. It has no times, so that it
// does not depend on the machine's speed.
std::string RunsCsv(const StudyPlan& plan, const StudyResults& results);
std::string TimingCsv(const StudyPlan& plan, const StudyResults& results);  // timing.csv

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_TABLES_H_
