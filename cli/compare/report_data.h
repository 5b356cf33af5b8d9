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

// Where the results come from, beside the plan.
struct Provenance {
  std::string command;  // as it was typed
  std::string started;  // UTC, ISO 8601
  double seconds = 0;
  int threads = 1;
};

// `runtime` tells of the norm plugins that the runs used.
nlohmann::ordered_json ReportData(const Plan& plan, const StudyResults& results,
                                  const Provenance& provenance, HostRuntime* runtime);

// The names of a study's models, at most four.
std::string StudyTitle(const Plan& plan);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_REPORT_DATA_H_
