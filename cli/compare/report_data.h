// The data of report.html: the object that docs/report.md describes.
#ifndef PLUMB_CLI_COMPARE_REPORT_DATA_H_
#define PLUMB_CLI_COMPARE_REPORT_DATA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/compare/plan.h"
#include "cli/compare/results.h"
#include "runtime/tools/host_runtime.h"

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

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_REPORT_DATA_H_
