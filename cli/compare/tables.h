// The results of a study as tables. Only timing.csv and the last column of SummaryTable tell times;
// all else is the same bytes however the study was run. Pure functions.
#ifndef PLUMB_CLI_COMPARE_TABLES_H_
#define PLUMB_CLI_COMPARE_TABLES_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/compare/plan.h"
#include "cli/compare/results.h"

namespace plumb::cli {

struct Cell {
  std::string text;
  double value = 0, sd = 0;  // NaN: none
};

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

// One row a group: figures as mean ± standard deviation over the runs that finished.
Table SummaryTable(const Plan& plan, const StudyResults& results, bool with_times);
// One row a group but the first: mean difference and 95 % confidence interval.
Table PairedTable(const Plan& plan, const StudyResults& results);

std::string ToMarkdown(const Table& table);
std::string ToText(const Table& table);  // columns aligned, for a terminal

std::string TableMarkdown(const Plan& plan, const StudyResults& results);  // table.md
std::string TableCsv(const Plan& plan, const StudyResults& results);       // table.csv
std::string TimingCsv(const Plan& plan, const StudyResults& results);      // timing.csv

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_TABLES_H_
