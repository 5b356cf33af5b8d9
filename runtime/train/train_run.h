// SPDX-License-Identifier: Apache-2.0
// plumb::TrainRun: a training run in a directory: weights, optimizer, metrics, checkpoints.
//
// The directory contains model.pbtxt and train.pbtxt (with defaults filled in), run.json (data,
// seed, versions), tokenizer.json, metrics.csv (one row per step), checkpoints/step-*/ and
// latest. Every file is replaced atomically, so a run that is killed at any time resumes from its
// last checkpoint with the same bits as an uninterrupted run. last_good names the newest checkpoint
// outside of a loss spike, which is never deleted. incidents.jsonl has an object for each spike and
// divergence.
#ifndef PLUMB_RUNTIME_TRAIN_TRAIN_RUN_H_
#define PLUMB_RUNTIME_TRAIN_TRAIN_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/profile.h"
#include "runtime/train/run_incidents.h"
#include "runtime/train/train_request.h"

namespace plumb {

class TrainRunState;

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

  // Takes one step, writes its row of metrics, and performs everything due: validation, a
  // checkpoint (after the last step as TrainRequest::last_checkpoint says). Errors: kAborted if
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

  // Returns the weights as the content of a safetensors file, like that of a checkpoint.
  absl::StatusOr<std::string> Weights();

  // Returns the loss over the whole validation split.
  absl::StatusOr<double> ValidationLoss();

  // Runs a rank other than 0: repeats every step of rank 0 until that rank finishes, and returns
  // its exit code. Calls `wants_stop` after each step. Requires: rank > 0. Such a rank may call
  // only info() and Follow().
  absl::StatusOr<int> Follow(const std::function<bool()>& wants_stop);
  // Makes Follow on the other ranks return `exit_code`. Must be the last call on rank 0. Does
  // nothing if there is one rank.
  absl::Status EndFollowers(int exit_code);

 private:
  explicit TrainRun(std::unique_ptr<TrainRunState> state);
  const std::unique_ptr<TrainRunState> state_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_TRAIN_RUN_H_
