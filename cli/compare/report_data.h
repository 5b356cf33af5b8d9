// SPDX-License-Identifier: Apache-2.0
// The data of report.html: the object that docs/report.md describes.
#ifndef PLUMB_CLI_COMPARE_REPORT_DATA_H_
#define PLUMB_CLI_COMPARE_REPORT_DATA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/compare/plan.h"
#include "cli/compare/results.h"
#include "runtime/app/host_runtime.h"

namespace plumb::cli {

// Where and when the results were made.
struct Provenance {
  std::string command;  // as it was typed
  std::string started;  // UTC, ISO 8601
  double seconds = 0;
  int threads = 1;
  std::vector<std::string> hosts;
};

// `runtime` tells of the norm plugins that the runs used.
nlohmann::ordered_json ReportData(const Plan& plan, const StudyResults& results,
                                  HostRuntime* runtime);

// All of a study's figures that are of time, speed or host: the data of provenance.json.
nlohmann::ordered_json ProvenanceData(const Plan& plan, const StudyResults& results,
                                      const Provenance& provenance);

// The names of a study's models, at most four.
std::string StudyTitle(const Plan& plan);

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

#endif  // PLUMB_CLI_COMPARE_REPORT_DATA_H_
