// SPDX-License-Identifier: Apache-2.0
// plumb_study_run.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/client/host_runtime.h"
#include "runtime/report/study_run.h"
#include "runtime/study/study.h"
#include "runtime/study/study_host.h"

namespace plumb::runs {
namespace {

// Study of a host that called plumb_study_run.
class CallingHost : public StudyHost {
 public:
  static absl::StatusOr<CallingHost> Create(const plumb_study_options& options) {
    CallingHost host(options);
    PLUMB_ASSIGN_OR_RETURN(host.runtime_, capi::Complete(options.runtime));
    PLUMB_ASSIGN_OR_RETURN(host.norms_, capi::ToList<const plumb_norm_plugin*>(
                                            "norms", options.norms, options.norms_count));
    return host;
  }

  absl::StatusOr<std::unique_ptr<HostRuntime>> CreateRuntime(int threads) override {
    plumb_runtime_options options = runtime_;
    options.threads = threads;
    return HostRuntime::Create(options, norms_);
  }
  // Creates the runtime of the plan, whose threads the runs divide.
  absl::StatusOr<std::unique_ptr<HostRuntime>> CreateRuntime() {
    return CreateRuntime(runtime_.threads);
  }

  void BeginTraining(const StudyPlan& plan, const std::vector<RunState>& states,
                     bool /*leads*/) override {
    plan_ = &plan;
    states_ = &states;
  }
  void EndTraining() override {
    ShowProgress();
    states_ = nullptr;
  }
  void ShowProgress() override {
    if (options_.on_progress == nullptr) return;
    const plumb_study_progress progress = Progress();
    stops_ = options_.on_progress(options_.user, &progress) != 0 || stops_;
  }
  bool IsInterrupted() override { return stops_; }
  void Note(absl::string_view message) override {
    const std::string text(message);
    if (runtime_.log != nullptr) runtime_.log(runtime_.log_user, PLUMB_LOG_INFO, text.c_str());
  }

 private:
  explicit CallingHost(const plumb_study_options& options) : options_(options) {}

  plumb_study_progress Progress() const {
    plumb_study_progress progress = PLUMB_STUDY_PROGRESS_INIT;
    for (size_t i = 0; i < states_->size(); ++i) {
      const RunState& state = (*states_)[i];
      if (state.phase == RunPhase::kElsewhere) continue;
      ++progress.runs;
      const bool ended = state.phase == RunPhase::kFinished || state.phase == RunPhase::kDiverged;
      if (state.found) {
        ++progress.reused;
        ++progress.ended;
        continue;
      }
      if (ended) ++progress.ended;
      const int64_t steps = plan_->groups[plan_->runs[i].group].training.max_steps;
      progress.steps += steps;
      progress.steps_taken += ended ? steps : state.step.load();
    }
    return progress;
  }

  const plumb_study_options options_;
  plumb_runtime_options runtime_ = PLUMB_RUNTIME_OPTIONS_INIT;
  std::vector<const plumb_norm_plugin*> norms_;
  const StudyPlan* plan_ = nullptr;  // both are set during the training only
  const std::vector<RunState>* states_ = nullptr;
  bool stops_ = false;
};

absl::Status Run(const char* study, const plumb_study_options& options) {
  if (options.out == nullptr) return capi::NullArgument("out");
  const StudyTimer timer;
  PLUMB_ASSIGN_OR_RETURN(CallingHost host, CallingHost::Create(options));
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> runtime, host.CreateRuntime());
  StudyRequest request;
  PLUMB_ASSIGN_OR_RETURN(request.study, MakeStudy({study}, {}));
  request.out = std::string(capi::GetText(options.out));
  request.store = std::string(capi::GetText(options.store));
  request.overwrite = options.overwrite != 0;
  request.command = std::string(capi::GetText(options.command));
  PLUMB_RETURN_IF_ERROR(RunStudy(request, timer, &host, runtime.get()).status());
  // Short runs may all have ended when on_progress is called for the first time.
  return host.IsInterrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

}  // namespace
}  // namespace plumb::runs

plumb_status plumb_study_run(const char* study, const plumb_study_options* options,
                             plumb_error** error) {
  return plumb::capi::Guard(error, [&]() -> absl::Status {
    if (study == nullptr) return plumb::capi::NullArgument("study");
    if (options == nullptr) return plumb::capi::NullArgument("options");
    PLUMB_ASSIGN_OR_RETURN(const plumb_study_options complete, plumb::capi::Complete(options));
    return plumb::runs::Run(study, complete);
  });
}
