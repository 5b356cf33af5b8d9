// SPDX-License-Identifier: Apache-2.0
// StudyHost: the program that runs a study, which shows its progress and can interrupt it.
#ifndef PLUMB_RUNTIME_STUDY_STUDY_HOST_H_
#define PLUMB_RUNTIME_STUDY_STUDY_HOST_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/client/host_runtime.h"
#include "runtime/study/plan.h"

namespace plumb {

// Phase of a run; kElsewhere: the run is not trained here.
enum class RunPhase { kWaiting, kRunning, kFinished, kDiverged, kElsewhere };

// Progress of a run. The training threads write it.
struct RunState {
  std::atomic<RunPhase> phase{RunPhase::kWaiting};
  std::atomic<int64_t> step{0};
  std::atomic<double> loss{0};     // last step; after the end, the mean of the last 100
  std::atomic<bool> found{false};  // ended before this process started
};

// Calls come from the thread that runs the study, one at a time.
class StudyHost {
 public:
  virtual ~StudyHost() = default;

  // Creates a runtime with this number of threads, for runs that are trained concurrently.
  virtual absl::StatusOr<std::unique_ptr<HostRuntime>> CreateRuntime(int threads) = 0;

  // Surround the training. `plan` and `states` are valid between the two calls. `leads`: false on
  // ranks other than 0, which show nothing.
  virtual void BeginTraining(const StudyPlan& /*plan*/, const std::vector<RunState>& /*states*/,
                             bool /*leads*/) {}
  virtual void EndTraining() {}
  // Shows what has changed, several times a second between the two calls.
  virtual void ShowProgress() {}
  // Returns true once the user has asked to stop. Called during the training only.
  virtual bool IsInterrupted() { return false; }
  // Shows a message of one line.
  virtual void Note(absl::string_view /*message*/) {}
  void Warn(absl::string_view warning) { Note(absl::StrCat("warning: ", warning)); }
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_STUDY_HOST_H_
