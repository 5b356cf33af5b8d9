// SPDX-License-Identifier: Apache-2.0
// Contents of the files that a study writes for people and for spreadsheets.
#ifndef PLUMB_RUNTIME_REPORT_STUDY_FILES_H_
#define PLUMB_RUNTIME_REPORT_STUDY_FILES_H_

#include <string>

#include "runtime/study/plan.h"
#include "runtime/study/results.h"

namespace plumb {

std::string TableMarkdown(const StudyPlan& plan, const StudyResults& results);  // table.md
std::string TableCsv(const StudyPlan& plan, const StudyResults& results);       // table.csv
// Returns runs.csv: one row per run, with losses in full precision. It has no times, so that it
// does not depend on the machine's speed.
std::string RunsCsv(const StudyPlan& plan, const StudyResults& results);
std::string TimingCsv(const StudyPlan& plan, const StudyResults& results);  // timing.csv

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_STUDY_FILES_H_
