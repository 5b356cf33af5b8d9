// SPDX-License-Identifier: Apache-2.0
// Data of report.html: the object that docs/report.md describes.
#ifndef PLUMB_RUNTIME_REPORT_REPORT_DATA_H_
#define PLUMB_RUNTIME_REPORT_REPORT_DATA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/client/host_runtime.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"

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

// Returns the mean duration of a step of each group. report.html has these next to the report, and
// report.json does not, because it is the same wherever a study is run.
nlohmann::ordered_json SecondsPerStep(const StudyPlan& plan, const StudyResults& results);

// Returns the data of provenance.json: all figures of a study that are about time, speed or hosts.
nlohmann::ordered_json ProvenanceData(const StudyPlan& plan, const StudyResults& results,
                                      const StudyProvenance& provenance);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_REPORT_DATA_H_
