// SPDX-License-Identifier: Apache-2.0
// TrainRanks: what the ranks of one training run tell each other. Rank 0 has the run: its
// directory, its clock, whatever is decided. The others do what it tells them, by one small message
// for each step, and nothing else. Thread-compatible. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_TRAIN_RANKS_H_
#define PLUMB_RUNTIME_APP_TRAIN_TRAIN_RANKS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/checkpoint/checkpoint.h"
#include "runtime/app/checkpoint/checkpoint_writers.h"
#include "runtime/app/launch/launch.h"
#include "runtime/app/plumb_api.h"
#include "runtime/app/train/recipe.h"
#include "runtime/data/data.h"

namespace plumb {

class TrainRanks {
 public:
  // `launch` has several ranks and must outlive this. `run_dir`: as this rank calls it.
  TrainRanks(Launch* launch, std::string run_dir) : launch_(launch), run_dir_(std::move(run_dir)) {}

  bool is_first() const { return launch_->is_first(); }
  int size() const { return launch_->size(); }
  const plumb_communicator* communicator() const { return launch_->communicator(); }

  // --- Before training: all ranks call them ---

  // Returns this rank's status or, if that is OK, the first one of all ranks that is not.
  absl::Status AllOk(const absl::Status& mine) const;
  // Returns what rank 0 says.
  absl::StatusOr<bool> FirstSays(bool mine) const;
  // Replaces the texts by those of rank 0.
  absl::Status ShareTexts(std::initializer_list<std::string*> texts) const;
  // Fails on all ranks with the first difference between what they train. Warns on rank 0 of
  // processors that round differently, unless that is an error (`require_same_bits`).
  absl::Status CheckAgree(HostRuntime* runtime, const Recipe& recipe, const std::string& model_text,
                          const api::Model& model, const Dataset& data, bool require_same_bits);
  // The trainer, of a model with `weights` tensors, that all further calls are about.
  void SetTrainer(api::Trainer* trainer, size_t weights);

  // --- On rank 0, while the others follow ---

  // Tells the others to take a step on this batch, and takes it. Sets *stop_wanted where another
  // rank has got a signal.
  absl::StatusOr<api::StepInfo> Step(int64_t batch,
                                     absl::FunctionRef<absl::StatusOr<api::StepInfo>()> step,
                                     bool* stop_wanted);
  // kAborted when a weight, a moment or a norm's buffer is not finite, on any rank.
  absl::Status CheckFinite();
  // Calls `use`, which may read and write all of the trainer's states.
  absl::Status WithStates(absl::FunctionRef<absl::Status()> use);
  // Writes the files of a checkpoint: all ranks do where all see the directory, else this one.
  absl::Status WriteStates(const std::string& directory, CheckpointContents::Write write);
  // Tells the others what Follow is to return. The last call.
  absl::Status End(int exit_code);

  // --- On the other ranks ---

  // Does what rank 0 does until that is at its end; returns its exit code. `step` takes a step on a
  // batch; `wants_stop` is asked after each.
  absl::StatusOr<int> Follow(absl::FunctionRef<absl::Status(int64_t batch)> step,
                             const std::function<bool()>& wants_stop);

 private:
  struct Order;
  absl::Status Tell(Order order);
  absl::Status ShareStates(absl::FunctionRef<absl::Status()> use);
  absl::Status CheckSameText(absl::string_view what, const std::string& mine) const;
  CheckpointWriters Writers() const { return {launch_->ranks(), trainer_, run_dir_, weights_}; }

  Launch* const launch_;
  const std::string run_dir_;
  api::Trainer* trainer_ = nullptr;
  size_t weights_ = 0;
  bool are_alike_ = true;  // what several ranks have is equal to the bit
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_TRAIN_RANKS_H_
