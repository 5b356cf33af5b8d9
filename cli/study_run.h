// SPDX-License-Identifier: Apache-2.0
// A study from its description to its report: what `plumb compare` and `plumb demo` share.
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

// A word as a shell would have to be given it.
std::string Quoted(const std::string& word);

// When a command began: the report says so. Made first of all.
struct StudyTimer {
  StudyTimer();
  std::chrono::steady_clock::time_point begin;
  std::string started;  // UTC, ISO 8601
};

struct StudyRequest {
  Study study;
  std::string out;
  std::string command;  // which resumes it, as it would be typed
  bool quiet = false;   // no progress on stderr
  Shard shard = {};
  // Where several ranks share the study; else null. `out` is looked at by rank 0 alone.
  Launch* launch = nullptr;

  bool is_shared() const { return launch != nullptr && launch->size() > 1; }
  bool leads() const { return launch == nullptr || launch->is_first(); }
};

struct StudyOutcome {
  Plan plan;
  StudyResults results;
  Json report;      // the data of report.html
  Json provenance;  // of provenance.json
};

// A HostRuntime as the command line asks for, but with so many threads.
absl::StatusOr<std::unique_ptr<HostRuntime>> WithThreads(Invocation invocation, int threads);

// Prints what the study would take: some steps of each group are timed, and nothing is written.
// Errors: as RunStudy, but that the directory is not looked at.
absl::Status PrintStudyDryRun(const StudyRequest& request, bool json, const Invocation& invocation,
                              HostRuntime* runtime);

// Trains what has not been trained yet, and writes the tables and the report into `out`. kCancelled
// when it was interrupted, which it says on stderr with the command that resumes; other errors: as
// MakePlan, and a directory that holds something else. `runtime` is for plan and report; the runs
// have their own, of `invocation`.
absl::StatusOr<StudyOutcome> RunStudy(const StudyRequest& request, const StudyTimer& timer,
                                      const Invocation& invocation, HostRuntime* runtime);

// The same of one shard: trains its runs and writes no tables. Returns the plan.
absl::StatusOr<Plan> RunShard(const StudyRequest& request, const Invocation& invocation,
                              HostRuntime* runtime);

// The part of a rank that rank 0 gives runs to, whichever of the two it is that rank 0 does.
absl::Status FollowStudy(const StudyRequest& request, const Invocation& invocation,
                         HostRuntime* runtime);

// Gathers the runs of shards (MergeRuns) and writes tables and report. The request's
// study is StudyOfDirectory of the first.
absl::StatusOr<StudyOutcome> MergeStudy(const StudyRequest& request,
                                        const std::vector<std::string>& directories,
                                        const StudyTimer& timer, HostRuntime* runtime);

// The summary, the paired differences, and where the report is.
std::string OutcomeText(const StudyOutcome& outcome);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_STUDY_RUN_H_
