// SPDX-License-Identifier: Apache-2.0
// A study from its description to the files of its directory: plan, training, statistics, tables
// and report. Thread-safe: no state but the directories, which locks protect.
#ifndef PLUMB_RUNTIME_REPORT_STUDY_RUN_H_
#define PLUMB_RUNTIME_REPORT_STUDY_RUN_H_

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/ranks/launch.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"
#include "runtime/study/study.h"
#include "runtime/study/study_host.h"

namespace plumb {

// Start time of a command, for the report. To be created first.
struct StudyTimer {
  StudyTimer();
  std::chrono::steady_clock::time_point begin;
  std::string started;  // UTC, ISO 8601
};

struct StudyRequest {
  Study study;
  std::string out;         // directory of the study
  std::string command;     // command line that resumes the study
  std::string store;       // directory of the RunStore; "" for none
  bool overwrite = false;  // trains runs again that had other inputs (ClaimDirectory)
  // Job whose ranks share the study; null for one process. Only rank 0 accesses `out`.
  Launch* launch = nullptr;

  bool is_shared() const { return launch != nullptr && launch->size() > 1; }
  bool leads() const { return launch == nullptr || launch->is_first(); }
};

struct StudyOutcome {
  StudyPlan plan;
  StudyResults results;
  nlohmann::ordered_json report;      // data of report.json
  nlohmann::ordered_json provenance;  // data of provenance.json
};

// Makes the plan of a study and warns of its oddities. Writes nothing. Errors: those of MakePlan.
absl::StatusOr<StudyPlan> PlanStudy(const StudyRequest& request, StudyHost* host,
                                    HostRuntime* runtime);

// Trains what has not been trained yet, and writes the tables and the report into the study's
// directory. `runtime` serves the plan and the report; `host` creates those of the runs. Errors:
// kCancelled if interrupted; those of MakePlan; a directory that holds something else.
absl::StatusOr<StudyOutcome> RunStudy(const StudyRequest& request, const StudyTimer& timer,
                                      StudyHost* host, HostRuntime* runtime);

// Runs a rank other than 0 while rank 0 is in RunStudy: trains the runs that it assigns.
absl::Status FollowStudy(const StudyRequest& request, StudyHost* host, HostRuntime* runtime);

// Writes the tables and the report about runs that any commands have trained (FindRuns) into the
// directory of the request, which is not the directory of a run or a study. Of the request's study
// only the title counts. Errors: those of FindRuns.
absl::StatusOr<StudyOutcome> ReportRuns(const StudyRequest& request,
                                        const std::vector<std::string>& paths,
                                        const StudyTimer& timer, StudyHost* host,
                                        HostRuntime* runtime);

// Returns the summary, the paired differences, and the path of the report.
std::string OutcomeText(const StudyOutcome& outcome);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_STUDY_RUN_H_
