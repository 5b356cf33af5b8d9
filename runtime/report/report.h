// SPDX-License-Identifier: Apache-2.0
// report.html: a comparison of models as one self-contained page without network, server or other
// files, and its data, the object that docs/report.md describes.
//
// The data are stored in the page as JSON, and its scripts draw them. Names, samples and messages
// are arbitrary text from users, data sets and models: they are escaped here so that no byte can
// end the element that holds them, and the scripts insert them as text only.
#ifndef PLUMB_RUNTIME_REPORT_REPORT_H_
#define PLUMB_RUNTIME_REPORT_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/client/host_runtime.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"

namespace plumb {

// Returns the page of `report`, an object as described in docs/report.md. Omits sections whose data
// are missing. Never throws: bytes that are not UTF-8 become U+FFFD, numbers that are not finite
// become null.
std::string RenderReport(const nlohmann::ordered_json& report);

// Returns `json` on one line for a <script type="application/json">: a JSON parser reads the same
// value, but no character ends the element or, in older JavaScript, a line.
std::string JsonForScript(const nlohmann::ordered_json& json);

// Returns the page before its data, up to and including <script type="application/json" ...>, as
// assembled from runtime/report at build time.
absl::string_view PageBeforeData();

// Returns the page after its data, from </script> on.
absl::string_view PageAfterData();

// Command, time and machines that produced the results.
struct StudyProvenance {
  std::string command;  // exactly the command that was typed
  std::string started;  // UTC, ISO 8601
  double seconds = 0;
  int threads = 1;
  std::vector<std::string> hosts;
};

// Returns the data of report.json. `runtime` describes the norm plugins that the runs used.
nlohmann::ordered_json ReportData(const StudyPlan& plan, const StudyResults& results,
                                  HostRuntime* runtime);

// Returns the data of report.html: those of report.json, `report`, with the pictures of the models
// and the mean duration of a step of each group, which is not the same wherever a study is run, and
// with names of files instead of paths.
nlohmann::ordered_json PageData(nlohmann::ordered_json report, const StudyPlan& plan,
                                const StudyResults& results);

// Returns the data of provenance.json: all figures of a study that are about time, speed or hosts.
nlohmann::ordered_json ProvenanceData(const StudyPlan& plan, const StudyResults& results,
                                      const StudyProvenance& provenance);

// Returns the commit that is checked out in the repository of a file, as hexadecimal digits; "" if
// the file is in none. Changes that are not committed do not matter: a report has the hashes of its
// files.
std::string FindGitCommit(const std::string& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_REPORT_H_
