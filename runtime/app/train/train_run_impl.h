// SPDX-License-Identifier: Apache-2.0
// The state of a TrainRun. train_run.cc begins runs and takes their steps, train_run_resume.cc
// resumes them, train_run_incidents.cc continues after divergences. What only a run of several
// ranks does is in train_ranks.h. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_TRAIN_RUN_IMPL_H_
#define PLUMB_RUNTIME_APP_TRAIN_TRAIN_RUN_IMPL_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "runtime/app/checkpoint/checkpoint.h"
#include "runtime/app/train/init_from_run.h"
#include "runtime/app/train/metrics.h"
#include "runtime/app/train/recipe.h"
#include "runtime/app/train/run_directory.h"
#include "runtime/app/train/run_events.h"
#include "runtime/app/train/run_incidents.h"
#include "runtime/app/train/run_probe.h"
#include "runtime/app/train/train.h"
#include "runtime/app/train/train_ranks.h"
#include "runtime/base/file.h"
#include "runtime/data/batches.h"

namespace plumb {

struct TrainRun::Impl {
  using Clock = std::chrono::steady_clock;
  // Writing checkpoints takes at most a twentieth of the time.
  static constexpr double kWritesApart = 20;

  // Batches of what is held out, and the evaluator of their loss.
  struct Validation {
    EvalBatches batches;
    Batch batch;
    api::EvaluatorOptions options;
    std::optional<TokenMasking> masking;
    int64_t bytes = 0;                        // that the evaluator takes
    std::optional<api::Evaluator> evaluator;  // none until the trainer is there
  };

  explicit Impl(HostRuntime* host) : runtime(host) {}
  // As TrainRun's, but that they throw std::bad_alloc.
  absl::Status Open(const TrainRequest& request);
  absl::StatusOr<StepReport> Step();
  absl::StatusOr<std::string> SaveCheckpoint();
  absl::StatusOr<double> ValidationLoss(int64_t max_batches);

  HostRuntime* const runtime;
  std::unique_ptr<TrainRanks> ranks;  // null: this process alone
  std::optional<DirectoryLock> lock;
  TrainInfo info;
  Recipe recipe;
  std::string model_text;  // with all that it refers to inside
  std::unique_ptr<Dataset> data;
  std::optional<api::Model> model;
  std::optional<TrainBatches> batches;
  Batch micro_batch;
  std::optional<api::Trainer> trainer;
  std::optional<Validation> validation;    // none where nothing is held out, and on ranks but 0
  std::unique_ptr<MetricsWriter> metrics;  // null when no files are written
  std::unique_ptr<RunEvents> events;       // null unless requested
  ProbeOptions probe_options;              // every 0: none
  std::unique_ptr<RunProbe> probe;
  IncidentState incidents;
  std::unique_ptr<IncidentLog> incident_log;  // null when no files are written
  int64_t stopped_batch = -1;                 // at which the run ended with an error
  int64_t checkpoint_step = -1;               // of the newest checkpoint
  std::string checkpoint_path;
  Clock::time_point saved_at = Clock::now();   // or begun
  Clock::time_point looked_at = Clock::now();  // whether the directory is there
  double save_seconds = 0;                     // of the newest checkpoint

  const v1::Train& fields() const { return recipe.fields; }
  int64_t step() const { return trainer->Steps(); }

  // True if the files of a run are read and continued; false if a run begins.
  absl::StatusOr<bool> ResumesFiles(const TrainRequest& request) const;
  absl::Status OpenNew(const TrainRequest& request);
  absl::Status OpenExisting(const TrainRequest& request);
  // --- Where there are several ranks; in train_run_follow.cc ---
  // Rank 0: sends what the others need of a run that is resumed. The others: receive it.
  absl::Status SendRunFiles(const Tokenizer& tokenizer);
  absl::Status ReadRunFilesOfRankZero(const TrainRequest& request);
  // Opens the run on a rank other than 0.
  absl::Status OpenFollower(const TrainRequest& request, bool resumes);
  // ---
  // Reads a new run's recipe, data and model.
  absl::Status ReadNew(const TrainRequest& request);
  absl::Status LoadData(const std::string& path, const Tokenizer* tokenizer = nullptr);
  absl::Status CheckSameTraining(const TrainRequest& request) const;
  absl::Status CheckSameModel(const TrainRequest& request, const Tokenizer& tokenizer) const;
  absl::Status CreateModel(const api::Spec& spec);
  absl::Status ReadInitialWeights(const std::string& run);
  // Fails unless a resumed run began with the weights that the request names.
  absl::Status CheckSameInit(const TrainRequest& request, const InitSource& source) const;
  // Prepares a run that has files and no checkpoint as it was when it began.
  absl::Status BeginAgain(const InitSource& source);
  absl::StatusOr<std::string> WholeTextOf(const api::Spec& spec) const;
  // Creates the trainer and all else that a step takes, if all ranks agree.
  absl::Status CreateTrainer(const TrainRequest& request);
  absl::Status PlanValidation();
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
  // kAborted when a weight, a moment or a norm's buffer is not finite.
  absl::Status CheckFinite() const;
  // Takes the step of this process on batch `number`, from 1.
  absl::StatusOr<api::StepInfo> StepOn(int64_t number);
  // Calls `use`, which may read and write all of the trainer's states.
  absl::Status WithStates(absl::FunctionRef<absl::Status()> use);

  // Decides whether the checkpoint that is being written is the last good one.
  void JudgeCheckpoint();
  // Does what the recipe says of a step that diverged; OK if the run continues. `weights_are_lost`:
  // they are not finite.
  absl::Status Survive(const absl::Status& divergence, bool weights_are_lost, StepReport* report);
  // Steps until one is finite, or the run ends with an error.
  absl::StatusOr<api::StepInfo> StepUntilFinite(StepReport* report);
  absl::Status Stop(const absl::Status& divergence, int64_t step, int64_t batch);
  // Returns to the last good checkpoint. Returns the message.
  absl::StatusOr<std::string> StepBack(const absl::Status& divergence, int64_t step, int64_t batch);
  // Sets the trainer's step and learning rate.
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

#endif  // PLUMB_RUNTIME_APP_TRAIN_TRAIN_RUN_IMPL_H_
