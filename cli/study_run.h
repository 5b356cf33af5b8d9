// SPDX-License-Identifier: Apache-2.0
// Studies on the command line: the part that `plumb compare` and `plumb demo` share.
#ifndef PLUMB_CLI_STUDY_RUN_H_
#define PLUMB_CLI_STUDY_RUN_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/study_progress.h"
#include "runtime/client/host_runtime.h"
#include "runtime/report/study_run.h"
#include "runtime/study/plan.h"
#include "runtime/study/study_host.h"

namespace plumb::cli {

// Returns a word quoted for a shell, if it needs quotes.
std::string Quoted(const std::string& word);

// Terminal of a study: shows progress and warnings on stderr, and lets signals interrupt the
// training. Requires: the arguments outlive this object.
class StudyConsole : public StudyHost {
 public:
  // `quiet`: show nothing.
  StudyConsole(const StudyRequest* request, bool quiet, const Invocation* invocation)
      : request_(*request), quiet_(quiet), invocation_(*invocation) {}

  absl::StatusOr<std::unique_ptr<HostRuntime>> CreateRuntime(int threads) override;
  void BeginTraining(const StudyPlan& plan, const std::vector<RunState>& states,
                     bool leads) override;
  void EndTraining() override;
  void ShowProgress() override;
  bool IsInterrupted() override;
  void Note(absl::string_view message) override;

  // Returns the exit code of a study that ended with `status`, or the error. If it was interrupted,
  // prints the command that resumes it.
  absl::StatusOr<int> ExitCode(const absl::Status& status);

 private:
  void PrintInterrupted();  // once

  const StudyRequest& request_;
  const bool quiet_;
  const Invocation& invocation_;
  std::optional<Interrupts> interrupts_;   // during the training
  std::optional<StudyProgress> progress_;  // during the training
  bool has_told_ = false;
};

// Prints what the study would need: times some steps of each group and writes nothing. Errors:
// those of RunStudy, except the ones about the directory.
absl::Status PrintStudyDryRun(const StudyRequest& request, bool json, bool quiet,
                              StudyConsole* console, HostRuntime* runtime);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_STUDY_RUN_H_
