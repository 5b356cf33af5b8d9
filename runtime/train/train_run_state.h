// SPDX-License-Identifier: Apache-2.0
// TrainRunState: everything that a TrainRun consists of. train_run.cc begins runs and takes their
// steps, resume_run.cc resumes them, train_run_incidents.cc continues after divergences,
// train_run_follow.cc has what only runs of several ranks do.
#ifndef PLUMB_RUNTIME_TRAIN_TRAIN_RUN_STATE_H_
#define PLUMB_RUNTIME_TRAIN_TRAIN_RUN_STATE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "runtime/base/file.h"
#include "runtime/client/recipe.h"
#include "runtime/data/batches.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/init_from_run.h"
#include "runtime/train/metrics.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_identity.h"
#include "runtime/train/run_incidents.h"
#include "runtime/train/run_probe.h"
#include "runtime/train/train_ranks.h"
#include "runtime/train/train_request.h"

namespace plumb {

class TrainRunState {
 public:
  using Clock = std::chrono::steady_clock;
  // Checkpoints triggered by time take at most 1/20 of the total time.
  static constexpr double kWritesApart = 20;

  // Batches of the validation split, and the evaluator of their loss.
  struct Validation {
    EvalBatches batches;
    Batch batch;
    api::EvaluatorOptions options;
    std::optional<TokenMasking> masking;
    int64_t bytes = 0;                        // memory of the evaluator
    std::optional<api::Evaluator> evaluator;  // created after the trainer
  };

  explicit TrainRunState(HostRuntime* host) : runtime(host) {}
  // Implementations of the functions of TrainRun. They throw std::bad_alloc.
  absl::Status Open(const TrainRequest& request);
  absl::StatusOr<StepReport> Step();
  absl::StatusOr<std::string> SaveCheckpoint();
  absl::StatusOr<double> ValidationLoss(int64_t max_batches);

  HostRuntime* const runtime;
  std::unique_ptr<TrainRanks> ranks;  // null: this process alone
  std::optional<DirectoryLock> lock;
  TrainInfo info;
  Recipe recipe;
  std::string model_text;  // includes everything that the model refers to
  std::shared_ptr<const Dataset> data;
  std::optional<api::Model> model;
  std::optional<TrainBatches> batches;
  Batch micro_batch;
  std::optional<api::Trainer> trainer;
  std::optional<Validation> validation;           // nullopt if the split is empty, and on ranks > 0
  std::unique_ptr<MetricsWriter> metrics;         // null if no files are written
  ProbeOptions probe_options;                     // every 0: no probes
  std::unique_ptr<WeightFigures> weight_figures;  // null: none are probed
  std::unique_ptr<RunProbe> probe;
  IncidentState incidents;
  std::unique_ptr<IncidentLog> incident_log;  // null if no files are written
  int64_t stopped_batch = -1;                 // batch at which the run ended with an error
  int64_t checkpoint_step = -1;               // step of the newest checkpoint
  std::string checkpoint_path;
  LastCheckpoint last_checkpoint = LastCheckpoint::kResumable;
  Clock::time_point saved_at = Clock::now();   // or the start of the run
  Clock::time_point looked_at = Clock::now();  // last check that the directory exists
  double save_seconds = 0;                     // duration of the newest checkpoint

  const v1::Train& fields() const { return recipe.fields; }
  int64_t step() const { return trainer->Steps(); }

  // Returns true if the run's files are read and continued; false if a new run begins.
  absl::StatusOr<bool> ResumesFiles(const TrainRequest& request) const;
  absl::Status OpenNew(const TrainRequest& request);
  absl::Status OpenExisting(const TrainRequest& request);
  // --- For several ranks; in train_run_follow.cc ---
  // SendRunFiles sends what other ranks need to resume a run; ReadRunFilesOfRankZero receives it.
  absl::Status SendRunFiles(const Tokenizer& tokenizer);
  absl::Status ReadRunFilesOfRankZero(const TrainRequest& request);
  // Opens the run on a rank other than 0.
  absl::Status OpenFollower(const TrainRequest& request, bool resumes);
  // ---
  // Reads the recipe, data and model of a new run.
  absl::Status ReadNew(const TrainRequest& request);
  // Reads the data with the tokenizer of a run that continues, which a study does not share.
  absl::Status LoadData(const std::string& path, const Tokenizer& tokenizer);
  absl::Status CheckSameTraining(const TrainRequest& request) const;
  absl::Status CheckSameModel(const TrainRequest& request, const Tokenizer& tokenizer) const;
  absl::Status CreateModel(const api::Spec& spec);
  absl::Status ReadInitialWeights(const std::string& run);
  // Fails unless a resumed run began with the weights that the request names.
  absl::Status CheckSameInit(const TrainRequest& request, const InitSource& source) const;
  // Restores the initial state of a run that has files but no checkpoint. `init`: the identity of
  // the weights that it began with, "" if it is not known.
  absl::Status RestartWithoutCheckpoint(const InitSource& source, const std::string& init);
  // Creates the trainer and everything else that a step needs, if all ranks agree.
  absl::Status CreateTrainer(const TrainRequest& request);
  absl::Status PlanValidation();
  absl::StatusOr<std::string> State() const;
  // Identifies the run that the request begins; `init`: from IdentifyWeights.
  absl::StatusOr<RunIdentity> Identify(const TrainRequest& request, const std::string& init) const;
  // Returns the identity with which a run of identity `then` continues after the checkpoint that
  // was read. Errors: kInvalidArgument with the parts that changed, unless edits are accepted.
  absl::StatusOr<RunIdentity> ContinueIdentity(const TrainRequest& request, RunIdentity then);
  absl::Status SetProbe(const ProbeOptions& options);
  bool ProbeDue(int64_t step) const {
    return probe_options.every > 0 && (step == 1 || step % probe_options.every == 0);
  }
  absl::Status TakeProbe(bool diverged, StepReport* report);
  absl::Status CheckState(const std::string& text, const std::string& file);
  absl::Status CheckEdits(const TrainRequest& request, const Checkpoint& checkpoint,
                          const std::string& model_then);
  absl::Status LoadCheckpoint(const TrainRequest& request, const std::string& path);
  absl::Status ReadTensors(const Checkpoint& checkpoint);
  // Waits until the lines of all logs are on disk.
  absl::Status SyncLogs();
  // Writes a checkpoint of this step, replacing an existing one.
  absl::Status WriteCheckpointNow();
  // Takes a step on batch `number`, from 1, on this rank.
  absl::StatusOr<api::StepInfo> StepOn(int64_t number);
  // Calls `use`, which may write the trainer's states, and sends them to other ranks.
  absl::Status WithStates(absl::FunctionRef<absl::Status()> use);

  // Handles a diverged step as the recipe specifies. Returns OK if the run continues.
  // `weights_are_lost`: some weights are not finite.
  absl::Status HandleDivergence(const absl::Status& divergence, bool weights_are_lost,
                                StepReport* report);
  // Takes steps until one is finite, or the run ends with an error.
  absl::StatusOr<api::StepInfo> StepUntilFinite(StepReport* report);
  absl::Status Stop(const absl::Status& divergence, int64_t step, int64_t batch);
  absl::Status NoteSpike(StepReport* report);
  absl::Status LogIncident(const IncidentLine& line);
  absl::Status KeepLines(absl::StatusOr<std::string> truncated);
  absl::Status CheckDirectory() const;
  // Warns if the run is at its end, or the schedule ends before a run that the request extends.
  void WarnIfFinished(const TrainRequest& request);
  bool Due(int64_t interval) const {
    return step() == fields().max_steps() || (interval > 0 && step() % interval == 0);
  }
  bool AllStepsDone() const { return step() >= fields().max_steps(); }
  bool CheckpointDue(Clock::time_point now) const {
    const double passed = std::chrono::duration<double>(now - saved_at).count();
    const double apart = fields().checkpoint_seconds();
    return Due(fields().checkpoint_interval()) ||
           (apart > 0 && passed >= std::max(apart, kWritesApart * save_seconds));
  }
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_TRAIN_RUN_STATE_H_
