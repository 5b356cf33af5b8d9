// What a TrainRun holds. train_run.cc begins runs and takes their steps, train_run_resume.cc
// resumes them, train_run_incidents.cc outlives divergences, train_run_ranks.cc is where several
// ranks train.
#ifndef PLUMB_RUNTIME_TOOLS_TRAIN_RUN_IMPL_H_
#define PLUMB_RUNTIME_TOOLS_TRAIN_RUN_IMPL_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/base/file.h"
#include "runtime/tools/checkpoint.h"
#include "runtime/tools/checkpoint_writers.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/init_from_run.h"
#include "runtime/tools/launch.h"
#include "runtime/tools/metrics.h"
#include "runtime/tools/recipe.h"
#include "runtime/tools/run_directory.h"
#include "runtime/tools/run_events.h"
#include "runtime/tools/run_incidents.h"
#include "runtime/tools/run_probe.h"
#include "runtime/tools/run_trainer.h"
#include "runtime/tools/train.h"

namespace plumb {

struct TrainRun::Impl {
  using Clock = std::chrono::steady_clock;
  // Writing checkpoints takes at most a twentieth of the time.
  static constexpr double kWritesApart = 20;

  // As TrainRun's, but that they throw std::bad_alloc.
  static absl::StatusOr<std::unique_ptr<TrainRun>> Open(HostRuntime* runtime,
                                                        const TrainRequest& request);
  absl::StatusOr<StepReport> Step();
  absl::StatusOr<std::string> SaveCheckpoint();

  std::optional<DirectoryLock> lock;
  TrainInfo info;
  Recipe recipe;
  plumb_runtime* runtime = nullptr;  // of the HostRuntime, which outlives this
  Launch* launch = nullptr;          // null: this process alone
  ModelHandle model;
  std::string model_text;  // with all that it refers to inside
  std::unique_ptr<Dataset> data;
  std::unique_ptr<RunTrainer> trainer;
  std::unique_ptr<MetricsWriter> metrics;  // null when no files are written
  std::unique_ptr<RunEvents> events;       // null unless requested
  ProbeOptions probe_options;              // every 0: none
  std::unique_ptr<RunProbe> probe;
  IncidentState incidents;
  std::unique_ptr<IncidentLog> incident_log;  // null when no files are written
  int64_t stopped_batch = -1;                 // at which the run ended with an error
  std::string matmul;                         // the engines of matrix products
  std::vector<std::string> warnings;
  int64_t checkpoint_step = -1;  // of the newest checkpoint
  std::string checkpoint_path;
  Clock::time_point saved_at = Clock::now();   // or begun
  Clock::time_point looked_at = Clock::now();  // whether the directory is there
  double save_seconds = 0;                     // of the newest checkpoint

  const v1::Train& fields() const { return recipe.fields; }
  int64_t step() const { return trainer->steps(); }

  // True if the files of a run are read and continued; false if a run begins. All ranks call it,
  // and rank 0 decides.
  absl::StatusOr<bool> ResumesFiles(const TrainRequest& request) const;
  absl::Status OpenNew(HostRuntime* warned, const TrainRequest& request);
  absl::Status OpenExisting(HostRuntime* warned, const TrainRequest& request);
  // Of a new run: its recipe, data and model.
  absl::Status ReadNew(const TrainRequest& request);
  absl::Status CheckSameTraining(HostRuntime* warned, const TrainRequest& request) const;
  absl::Status CheckSameModel(const TrainRequest& request, const Tokenizer& tokenizer) const;
  absl::Status CreateModel(const Spec& spec);
  absl::Status ReadInitialWeights(HostRuntime* warned, const std::string& run);
  // Fails unless a resumed run began with the weights that the request names.
  absl::Status CheckSameInit(const TrainRequest& request, const InitSource& source) const;
  // Prepares a run that has files and no checkpoint as it was when it began.
  absl::Status BeginAgain(HostRuntime* warned, const InitSource& source);
  absl::StatusOr<std::string> WholeTextOf(const Spec& spec) const;
  absl::Status CreateTrainer();
  absl::StatusOr<std::string> State() const;
  absl::Status SetProbe(const ProbeOptions& options);
  absl::Status TakeProbe(bool diverged, StepReport* report);
  absl::Status CheckState(const std::string& text, const std::string& file);
  absl::Status CheckEdits(const TrainRequest& request, const Checkpoint& checkpoint,
                          const std::string& model_then);
  absl::Status LoadCheckpoint(const TrainRequest& request, const std::string& path);
  absl::Status ReadTensors(const Checkpoint& checkpoint);
  // Writes a checkpoint of this step, over one that is there.
  absl::Status WriteCheckpointNow();
  // kAborted when a weight, a moment or a norm's buffer is not finite, on any rank.
  absl::Status CheckFinite() const;

  // --- Of several ranks; of one the same without messages ---

  // This rank's status, or, if that is OK, the first one of all ranks that is not. All call it.
  absl::Status WhereAllAreWell(const absl::Status& mine) const;
  // Whether all ranks train the same in the same way; the first difference. All call it.
  absl::Status CheckRanksAgree(HostRuntime* warned, const TrainRequest& request);
  // Of rank 0: what the others need of a run that is resumed.
  absl::Status SendRunFiles(const Tokenizer& tokenizer);
  // Of the other ranks.
  absl::Status OpenFollower(HostRuntime* warned, const TrainRequest& request, bool resumes);
  bool ranks_are_alike = true;  // what several of them have is equal to the bit
  absl::StatusOr<int> Follow(const std::function<bool()>& wants_stop);
  // Of rank 0, while the others follow. `use` may read and write all of the trainer's states.
  absl::StatusOr<plumb_step_info> StepTogether(int64_t batch, StepReport* report);
  absl::Status WithStates(absl::FunctionRef<absl::Status()> use);
  // Of rank 0: the files of a checkpoint, by all ranks where all see the directory, else alone.
  absl::Status WriteStates(const std::string& directory, CheckpointContents::Write write);
  CheckpointWriters Writers();

  // Whether the checkpoint that is being written is the last good one.
  void JudgeCheckpoint();
  // What the recipe says of a step that diverged; OK if the run goes on. `weights_are_lost`: they
  // are not finite.
  absl::Status Survive(const absl::Status& divergence, bool weights_are_lost, StepReport* report);
  // Steps until one is finite, or the run ends with an error.
  absl::StatusOr<plumb_step_info> StepUntilFinite(StepReport* report);
  absl::Status Stop(const absl::Status& divergence, int64_t step, int64_t batch);
  // Returns to the last good checkpoint; what there is to say.
  absl::StatusOr<std::string> StepBack(const absl::Status& divergence, int64_t step, int64_t batch);
  // The trainer's step and learning rate.
  absl::Status ApplyIncidents(int64_t step);
  absl::Status NoteSpike(StepReport* report);
  absl::Status LogIncident(IncidentLine line);
  absl::Status KeepLines(absl::StatusOr<std::string> truncated);
  absl::Status CheckDirectory() const;
  void WarnOfTheEnd();
  absl::Status OpenEvents(const TrainRequest& request);
  bool Due(int64_t interval) const {
    return step() == fields().max_steps() || (interval > 0 && step() % interval == 0);
  }
  bool CheckpointDue(Clock::time_point now) const {
    const double passed = std::chrono::duration<double>(now - saved_at).count();
    const double apart = fields().checkpoint_seconds();
    return Due(fields().checkpoint_interval()) ||
           (apart > 0 && passed >= std::max(apart, kWritesApart * save_seconds));
  }
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_TRAIN_RUN_IMPL_H_
