// What a TrainRun holds. train_run.cc begins runs and takes their steps, train_run_resume.cc
// resumes them.
#ifndef PLUMB_RUNTIME_API_TRAIN_RUN_IMPL_H_
#define PLUMB_RUNTIME_API_TRAIN_RUN_IMPL_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plumb/train.h"
#include "runtime/api/run_directory.h"
#include "runtime/api/run_events.h"
#include "runtime/api/run_probe.h"
#include "runtime/api/run_profile.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/base/file.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/evaluate.h"
#include "runtime/session/metrics.h"
#include "runtime/session/train_session.h"

namespace plumb {

struct TrainRun::Impl {
  using Clock = std::chrono::steady_clock;
  // Writing checkpoints takes at most a twentieth of the time.
  static constexpr double kWritesApart = 20;

  std::optional<DirectoryLock> lock;
  TrainInfo info;
  TrainSpec spec;
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<TrainSession> session;
  std::unique_ptr<EvalSession> validation;  // null when nothing is held out
  std::unique_ptr<MetricsWriter> metrics;   // null when no files are written
  std::unique_ptr<RunEvents> events;        // null unless requested
  ProbeOptions probe_options;               // every 0: none
  std::unique_ptr<RunProbe> probe;
  StepProfile profile;
  std::string matmul;  // the engines of matrix products
  std::vector<std::string> warnings;
  int64_t checkpoint_step = -1;  // of the newest checkpoint
  std::string checkpoint_path;
  Clock::time_point saved_at = Clock::now();   // or begun
  Clock::time_point looked_at = Clock::now();  // whether the directory is there
  double save_seconds = 0;                     // of the newest checkpoint

  absl::Status OpenNew(Runtime::Impl* runtime, const TrainRequest& request);
  absl::Status OpenExisting(Runtime::Impl* runtime, const TrainRequest& request);
  absl::Status CheckSameTraining(Runtime::Impl* runtime, const TrainRequest& request) const;
  absl::Status CheckSameModel(Runtime::Impl* runtime, const TrainRequest& request,
                              const Tokenizer& tokenizer) const;
  absl::Status CreateSessions();
  absl::Status SetProbe(const ProbeOptions& options);
  absl::Status TakeProbe(StepReport* report);
  absl::Status CheckState(const std::string& text, const std::string& file);
  absl::Status CheckEdits(Runtime::Impl* runtime, const TrainRequest& request,
                          const Checkpoint& checkpoint, const std::string& model_then);
  absl::Status LoadCheckpoint(Runtime::Impl* runtime, const TrainRequest& request);
  absl::Status KeepLines(absl::StatusOr<std::string> truncated);
  absl::Status CheckDirectory() const;
  void WarnOfTheEnd();
  absl::Status OpenEvents(const TrainRequest& request);
  bool Due(int64_t interval) const {
    return session->step() == spec.max_steps || (interval > 0 && session->step() % interval == 0);
  }
  bool CheckpointDue(Clock::time_point now) const {
    const double passed = std::chrono::duration<double>(now - saved_at).count();
    return Due(spec.checkpoint_interval) ||
           (spec.checkpoint_seconds > 0 &&
            passed >= std::max(spec.checkpoint_seconds, kWritesApart * save_seconds));
  }
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_API_TRAIN_RUN_IMPL_H_
