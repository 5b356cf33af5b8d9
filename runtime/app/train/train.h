// SPDX-License-Identifier: Apache-2.0
// plumb::TrainRun: a training run in a directory: weights, optimizer, metrics, checkpoints.
//
// The directory holds model.pbtxt and train.pbtxt (as resolved), run.json (data, seed, versions),
// tokenizer.json, metrics.jsonl (one object a step), checkpoints/step-*/ and latest. Every file is
// replaced atomically, so a run that is killed at any moment resumes from its last checkpoint, bit
// for bit as if it had not been. last_good names the newest checkpoint that is not part of a loss
// spike; it is kept. incidents.jsonl has an object for each spike and divergence, if there was one.
// On request there are TensorBoard event files with the content of
// metrics.jsonl (events.out.tfevents.*.plumb), one for each time that the run was started or
// resumed.
#ifndef PLUMB_RUNTIME_APP_TRAIN_TRAIN_H_
#define PLUMB_RUNTIME_APP_TRAIN_TRAIN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/launch/launch.h"
#include "runtime/app/model.h"
#include "runtime/app/probe.h"
#include "runtime/app/profile.h"
#include "runtime/base/memory.h"

namespace plumb {

struct TrainRequest {
  std::string model_path;  // may be empty when resuming
  std::string data_path;
  std::string train_path;  // may be empty: defaults
  Overrides model_overrides, train_overrides;
  std::optional<uint64_t> seed;  // over train.seed
  // A run, trained or imported, or a checkpoint: the weights that it has under the same name with
  // the same shape are what training begins with; the others are drawn. "": all are. A run that is
  // resumed must have begun with the same, or this is empty.
  std::string init;
  std::string out;  // "": no files are written
  // Continues the run from its last checkpoint, and begins it if it has none: if it was killed
  // before its first checkpoint, or if `out` holds no run yet and model_path says which one. Errors
  // when resuming: kNotFound without a run and without model_path; kInvalidArgument when
  // model.pbtxt or train.pbtxt was edited since the checkpoint, unless accept_edits.
  bool resume = false;
  bool accept_edits = false;
  ProbeOptions probe;  // into probes.jsonl
  // Write TensorBoard event files into `out`. A resumed run that has some continues them whatever
  // this says, so that they stay complete.
  bool tensorboard = false;
  // Write nothing, though all is checked as if it were, `out` and the room on its disk included.
  // Not with resume.
  bool dry_run = false;
  // The ranks that train this run together; it must outlive the run. Every rank opens the run with
  // the same request. Rank 0 has the directory, and takes steps; the others Follow. null: this
  // process alone.
  Launch* launch = nullptr;
  // Of ranks whose processors round differently: kInvalidArgument, and no warning.
  bool require_same_bits = false;
};

// What a run writes, in bytes.
struct TrainingDisk {
  int64_t checkpoint = 0;   // one
  int64_t checkpoints = 0;  // that are there at once, without those that the clock adds
  int64_t total = 0;        // the checkpoints and the metrics
  int64_t available = -1;   // on the disk of `out`; -1: not known
};

// What TrainRequest::init came to.
struct InitialWeights {
  std::string run;                 // "": all weights were drawn
  std::string weights;             // absolute path of the checkpoint, or of the imported run
  int64_t taken = 0;               // tensors
  std::vector<std::string> drawn;  // new in this model: "layers.6.mlp.norm.weight[768]"
  std::vector<std::string> left;   // of the run, which this model has not
};

struct TrainInfo {
  std::string model_name, out, data;  // data: "3,700 documents, 26 characters ..."
  int64_t parameters = 0;
  int64_t first_step = 0;  // steps that were done before (resumed)
  int64_t max_steps = 0;
  uint64_t seed = 0;
  std::string dtype;  // "f32", "bf16": the type of computation
  int threads = 1;
  int64_t cropped_documents = 0;  // training documents longer than the context
  int64_t context_length = 0;
  int64_t probe_every = 0;   // steps from probe to probe; 0: none
  int64_t chosen_units = 0;  // of a step, where the recipe does not say and ranks need more; else 0
  TrainingMemory memory;     // of the longest step
  MemoryLimit room;          // before any of it was taken
  TrainingDisk disk;         // of the whole run from its beginning
  InitialWeights initial;    // of a new run
};

// What went wrong in a run that goes on.
struct TrainIncident {
  enum class Kind {
    kSpike,     // the loss jumped: above its recent median by 1 nat and 10 median deviations
    kSkip,      // a step diverged, and its batch was left out (train.on_divergence: SKIP)
    kStepBack,  // a step diverged, and the run went back to its last good checkpoint (STEP_BACK)
  };
  Kind kind;
  int64_t step = 0;     // that diverged or begins the spike
  std::string message;  // one line, with the step and the place in the model
};

// Of a whole run, what was before it was resumed included.
struct IncidentCounts {
  int64_t spikes = 0, skips = 0, step_backs = 0;
};

struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0, learning_rate = 0, grad_norm = 0;
  int64_t tokens = 0;
  double seconds = 0;  // of the step alone
  std::optional<double> val_loss;
  const ProbeFigures* probe = nullptr;   // of a probed step, until the next one; else null
  std::string checkpoint;                // path of the checkpoint that this step wrote, or ""
  std::vector<TrainIncident> incidents;  // since the step before
  bool stop_wanted = false;              // by another rank, which has got a signal
};

class TrainRun {
 public:
  // Errors: bad text or data, or ranks that differ (kInvalidArgument), a directory that already
  // holds a run (kAlreadyExists), nothing to resume (kNotFound), a damaged checkpoint (kDataLoss),
  // other data or another model than the run's, less memory or disk than the run takes
  // (kResourceExhausted).
  static absl::StatusOr<std::unique_ptr<TrainRun>> Open(HostRuntime* runtime,
                                                        const TrainRequest& request);
  ~TrainRun();
  TrainRun(const TrainRun&) = delete;
  TrainRun& operator=(const TrainRun&) = delete;

  const TrainInfo& info() const;
  int64_t step() const;  // steps done
  bool done() const;     // step() == max_steps

  // One step, its metrics line, and what is due: validation, a checkpoint (always after the last
  // step). After a STEP_BACK it is a step that was done before. kAborted: diverged; the message
  // names the first bad tensor, its place in the model and the op that made it.
  absl::StatusOr<StepReport> Step();

  IncidentCounts incidents() const;

  // From now on steps are timed op by op, to the same bits, and summed up in profile().
  absl::Status StartProfile();
  Profile profile() const;  // of no steps unless it was started

  // A checkpoint now, unless this step has one. Returns its path. kAborted when a weight is not
  // finite.
  absl::StatusOr<std::string> SaveCheckpoint();

  // Loss of the validation split, over all of it.
  absl::StatusOr<double> ValidationLoss();

  // Runs a rank other than 0: repeats every step of rank 0 until that rank finishes, and returns
  // its exit code. `wants_stop` is asked after each step. Such a rank may call only info() and
  // Follow().
  absl::StatusOr<int> Follow(const std::function<bool()>& wants_stop);
  // Tells the other ranks what Follow is to return: the last call on rank 0. Does nothing where
  // there is one rank.
  absl::Status EndFollowers(int exit_code);

  struct Impl;

 private:
  explicit TrainRun(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_TRAIN_H_
