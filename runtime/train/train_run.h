// SPDX-License-Identifier: Apache-2.0
// plumb::TrainRun: a training run in a directory: weights, optimizer, metrics, checkpoints.
//
// The directory contains model.pbtxt and train.pbtxt (with defaults filled in), run.json (data,
// seed, versions), tokenizer.json, metrics.jsonl (one object per step), checkpoints/step-*/ and
// latest. Every file is replaced atomically, so a run that is killed at any time resumes from its
// last checkpoint with the same bits as an uninterrupted run. last_good names the newest checkpoint
// outside of a loss spike, which is never deleted. incidents.jsonl has an object for each spike and
// divergence.
#ifndef PLUMB_RUNTIME_TRAIN_TRAIN_RUN_H_
#define PLUMB_RUNTIME_TRAIN_TRAIN_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/memory.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"
#include "runtime/client/probe.h"
#include "runtime/client/profile.h"
#include "runtime/client/recipe.h"
#include "runtime/ranks/launch.h"
#include "runtime/train/metrics.h"

namespace plumb {

struct TrainRequest {
  std::string model_path;  // may be empty when resuming
  std::string data_path;
  std::string train_path;  // may be empty: defaults
  Overrides model_overrides, train_overrides;
  std::optional<uint64_t> seed;  // takes precedence over train.seed
  // A run, trained or imported, or a checkpoint. Weights that it has with the same name and shape
  // are the initial weights; the others are drawn. "": all are drawn. When resuming, it must be the
  // one that the run began with, or empty.
  std::string init;
  std::string out;  // "": no files are written
  // Resumes the run from its last checkpoint. Begins it if it was killed before its first
  // checkpoint, or if `out` holds no run and model_path is set. Errors: kNotFound if there is no
  // run and no model_path; kInvalidArgument if model.pbtxt or train.pbtxt was edited since the
  // checkpoint, or if plumb, a norm or the tokenizer is another one (RunIdentity), unless
  // accept_edits.
  bool resume = false;
  bool accept_edits = false;
  ProbeOptions probe;   // written to probes.jsonl
  int64_t samples = 0;  // number that a study draws after the training, for the run's identity
  // Performs all checks, including `out` and its free disk space, but writes nothing. Cannot be
  // combined with resume.
  bool dry_run = false;
  // Ranks that train this run together; must outlive the run. Every rank opens the run with the
  // same request. Rank 0 owns the directory and takes steps; the others call Follow. null: this
  // process alone.
  Launch* launch = nullptr;
  // If processors of the ranks round differently: kInvalidArgument instead of a warning.
  bool require_same_bits = false;
};

// Disk space that a run takes, in bytes.
struct TrainingDisk {
  int64_t checkpoint = 0;   // size of one
  int64_t checkpoints = 0;  // max number at the same time, without those triggered by time
  int64_t total = 0;        // checkpoints and metrics
  int64_t available = -1;   // free on the disk of `out`; -1: unknown
};

// Result of TrainRequest::init.
struct InitialWeights {
  std::string run;                 // "": all weights were drawn
  std::string weights;             // absolute path of the checkpoint, or of the imported run
  int64_t taken = 0;               // number of tensors
  std::vector<std::string> drawn;  // new in this model: "layers.6.mlp.norm.weight[768]"
  std::vector<std::string> left;   // tensors of the run that this model does not have
};

struct TrainInfo {
  std::string model_name, out, data;  // data: "3,700 documents, 26 characters ..."
  int64_t parameters = 0;
  int64_t first_step = 0;  // steps completed before a resume
  int64_t max_steps = 0;
  uint64_t seed = 0;
  std::string dtype;      // "f32" or "bf16", the type of computation
  std::string optimizer;  // optimizers and their peak learning rates, for users
  int threads = 1;
  int64_t cropped_documents = 0;  // training documents longer than the context
  int64_t skipped_documents = 0;  // training documents whose prompt fills the context
  int64_t context_length = 0;
  int64_t probe_every = 0;   // interval of probes; 0: none
  int64_t chosen_units = 0;  // units per step if they were chosen for the ranks, else 0
  TrainingMemory memory;     // for the longest step
  MemoryLimit memory_limit;  // before allocating any of it
  TrainingDisk disk;         // for the whole run
  InitialWeights initial;    // set for a new run
};

// Event in a run that continues.
struct TrainIncident {
  enum class Kind {
    kSpike,  // the loss exceeds its recent median by 1 nat and by 10 MAD
    kSkip,   // a step diverged and its batch was skipped (train.on_divergence: SKIP)
  };
  Kind kind;
  int64_t step = 0;     // the step that diverged or begins the spike
  std::string message;  // one line, with the step and the place in the model
};

// Totals over the whole run, including the steps before a resume.
struct IncidentCounts {
  int64_t spikes = 0, skips = 0;
};

struct StepReport : StepMetrics {
  const ProbeFigures* probe = nullptr;   // valid until the next one; null: not probed
  std::string checkpoint;                // path of the checkpoint written after this step, or ""
  std::vector<TrainIncident> incidents;  // since the previous step
  bool stop_wanted = false;              // another rank has received a signal
};

class TrainRun {
 public:
  // Opens a run. Errors: kInvalidArgument for invalid text or data, for data or a model other than
  // the run's, or if ranks differ; kAlreadyExists if the directory already holds a run; kNotFound
  // if there is nothing to resume; kDataLoss for a damaged checkpoint; kResourceExhausted if memory
  // or disk space is insufficient.
  static absl::StatusOr<std::unique_ptr<TrainRun>> Open(HostRuntime* runtime,
                                                        const TrainRequest& request);
  ~TrainRun();
  TrainRun(const TrainRun&) = delete;
  TrainRun& operator=(const TrainRun&) = delete;

  const TrainInfo& info() const;
  int64_t step() const;  // completed steps
  bool done() const;     // step() == max_steps

  // Takes one step, writes its metrics line, and performs everything due: validation, a checkpoint
  // (always after the last step). Errors: kAborted if
  // the step diverged; the message names the first bad tensor, its place in the model and the op
  // that produced it.
  absl::StatusOr<StepReport> Step();

  IncidentCounts incidents() const;

  // Starts timing steps op by op and summing them in profile(). The bits of the results do not
  // change.
  absl::Status StartProfile();
  Profile profile() const;  // has 0 steps unless started

  // Writes a checkpoint unless this step has one. Returns its path. Errors: kAborted if a weight is
  // not finite.
  absl::StatusOr<std::string> SaveCheckpoint();

  // Returns the loss over the whole validation split.
  absl::StatusOr<double> ValidationLoss();

  // Runs a rank other than 0: repeats every step of rank 0 until that rank finishes, and returns
  // its exit code. Calls `wants_stop` after each step. Requires: rank > 0. Such a rank may call
  // only info() and Follow().
  absl::StatusOr<int> Follow(const std::function<bool()>& wants_stop);
  // Makes Follow on the other ranks return `exit_code`. Must be the last call on rank 0. Does
  // nothing if there is one rank.
  absl::Status EndFollowers(int exit_code);

  struct Impl;

 private:
  explicit TrainRun(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_TRAIN_RUN_H_
