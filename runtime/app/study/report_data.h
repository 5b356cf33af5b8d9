// SPDX-License-Identifier: Apache-2.0
// Data of report.html: the object that docs/report.md describes.
#ifndef PLUMB_RUNTIME_APP_STUDY_REPORT_DATA_H_
#define PLUMB_RUNTIME_APP_STUDY_REPORT_DATA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/app/host_runtime.h"
#include "runtime/app/study/plan.h"
#include "runtime/app/study/results.h"

namespace plumb {

// Command, time and machines that produced the results.
struct StudyProvenance {
  std::string command;  // exactly the command that was typed
  std::string started;  // UTC, ISO 8601
  double seconds = 0;
  int threads = 1;
  std::vector<std::string> hosts;
};

// Returns the data of report.html. `runtime` describes the norm plugins that the runs used.
nlohmann::ordered_json ReportData(const StudyPlan& plan, const StudyResults& results,
                                  HostRuntime* runtime);

// Returns the data of provenance.json: all figures of a study that are about time, speed or hosts.
nlohmann::ordered_json ProvenanceData(const StudyPlan& plan, const StudyResults& results,
                                      const StudyProvenance& provenance);

// Returns the names of a study's models, at most four.
std::string StudyTitle(const StudyPlan& plan);

struct Cell {
  std::string text;
  double value = 0, sd = 0;  // NaN: no value
};

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

// Returns one row per group: each figure as mean ± standard deviation over the finished runs.
Table SummaryTable(const StudyPlan& plan, const StudyResults& results, bool with_times);
// Returns one row per pair of models in a cell: mean difference, its 95 % confidence interval and
// p-values. Of the judged metric these are all pairs, or for more than eight models those with the
// first, as for the other metrics.
Table PairedTable(const StudyPlan& plan, const StudyResults& results);
// Returns one row per model at its best setting, the lowest loss first. Requires: results.best.
Table BestTable(const StudyPlan& plan, const StudyResults& results);
// Returns the differences between the models at their best settings. Requires: results.best.
Table BestPairedTable(const StudyPlan& plan, const StudyResults& results);
// Returns the conclusion of a study in sentences: which models are better than which, and what its
// number of seeds could show.
std::string Conclusion(const StudyPlan& plan, const StudyResults& results);

std::string ToMarkdown(const Table& table);
std::string ToText(const Table& table);  // aligned columns, for a terminal

std::string TableMarkdown(const StudyPlan& plan, const StudyResults& results);  // table.md
std::string TableCsv(const StudyPlan& plan, const StudyResults& results);       // table.csv
// Returns runs.csv: one row per run, with losses in full precision. It has no times, so that it
// does not depend on the machine's speed.
std::string RunsCsv(const StudyPlan& plan, const StudyResults& results);
std::string TimingCsv(const StudyPlan& plan, const StudyResults& results);  // timing.csv

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_REPORT_DATA_H_
