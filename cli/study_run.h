// SPDX-License-Identifier: Apache-2.0
// A study from its description to its report: the part that `plumb compare` and `plumb demo` share.
#ifndef PLUMB_CLI_STUDY_RUN_H_
#define PLUMB_CLI_STUDY_RUN_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "cli/compare/plan.h"
#include "cli/compare/results.h"
#include "cli/output.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/launch/launch.h"
#include "runtime/app/study/study.h"

namespace plumb::cli {

// Returns a word quoted for a shell, if it needs quotes.
std::string Quoted(const std::string& word);

// Start time of a command, for the report. To be created first.
struct StudyTimer {
  StudyTimer();
  std::chrono::steady_clock::time_point begin;
  std::string started;  // UTC, ISO 8601
};

struct StudyRequest {
  Study study;
  std::string out;
  std::string command;  // command line that resumes the study
  bool quiet = false;   // no progress on stderr
  Shard shard = {};
  // Job whose ranks share the study; null for one process. Only rank 0 accesses `out`.
  Launch* launch = nullptr;

  bool is_shared() const { return launch != nullptr && launch->size() > 1; }
  bool leads() const { return launch == nullptr || launch->is_first(); }
};

struct StudyOutcome {
  Plan plan;
  StudyResults results;
  Json report;      // the data of report.html
  Json provenance;  // data of provenance.json
};

// Creates a HostRuntime with the options of the command line but this number of threads.
absl::StatusOr<std::unique_ptr<HostRuntime>> WithThreads(Invocation invocation, int threads);

// Prints what the study would need: times some steps of each group and writes nothing. Errors:
// those of RunStudy, except the ones about the directory.
absl::Status PrintStudyDryRun(const StudyRequest& request, bool json, const Invocation& invocation,
                              HostRuntime* runtime);

// Trains what has not been trained yet, and writes the tables and the report into `out`. `runtime`
// serves the plan and the report; the runs create their own runtimes from `invocation`. Errors:
// kCancelled if interrupted, after printing the command that resumes; those of MakePlan; a
// directory that holds something else.
absl::StatusOr<StudyOutcome> RunStudy(const StudyRequest& request, const StudyTimer& timer,
                                      const Invocation& invocation, HostRuntime* runtime);

// Does the same for one shard: trains its runs and writes no tables. Returns the plan.
absl::StatusOr<Plan> RunShard(const StudyRequest& request, const Invocation& invocation,
                              HostRuntime* runtime);

// Runs a rank other than 0 while rank 0 is in RunStudy or RunShard: trains the runs that it
// assigns.
absl::Status FollowStudy(const StudyRequest& request, const Invocation& invocation,
                         HostRuntime* runtime);

// Gathers the runs of shards (MergeRuns) and writes tables and report. Requires: the request's
// study is StudyOfDirectories(directories).
absl::StatusOr<StudyOutcome> MergeStudy(const StudyRequest& request,
                                        const std::vector<std::string>& directories,
                                        const StudyTimer& timer, HostRuntime* runtime);

// Returns the summary, the paired differences, and the path of the report.
std::string OutcomeText(const StudyOutcome& outcome);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_STUDY_RUN_H_
