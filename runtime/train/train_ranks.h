// SPDX-License-Identifier: Apache-2.0
// TrainRanks: communication between the ranks of one training run. Rank 0 owns the run: its
// directory, its clock and all decisions. The other ranks only follow its orders, one small message
// per step. Thread-compatible.
#ifndef PLUMB_RUNTIME_TRAIN_TRAIN_RANKS_H_
#define PLUMB_RUNTIME_TRAIN_TRAIN_RANKS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/plumb_api.h"
#include "runtime/client/recipe.h"
#include "runtime/data/data.h"
#include "runtime/ranks/launch.h"

namespace plumb {

class TrainRanks {
 public:
  // Requires: `launch` has several ranks and outlives this object.
  explicit TrainRanks(Launch* launch) : launch_(launch) {}

  bool is_first() const { return launch_->is_first(); }
  int size() const { return launch_->size(); }
  const plumb_communicator* communicator() const { return launch_->communicator(); }

  // --- Before training; collective ---

  // Returns this rank's error or, if it has none, that of the first rank with an error.
  absl::Status AllOk(const absl::Status& mine) const;
  // Returns the value of `mine` on rank 0.
  absl::StatusOr<bool> BroadcastFlag(bool mine) const;
  // Replaces the texts by those of rank 0.
  absl::Status BroadcastTexts(std::initializer_list<std::string*> texts) const;
  // Fails on all ranks with the first difference between what they train. Warns on rank 0 about
  // processors that round differently, or fails if `require_same_bits`.
  absl::Status CheckAgree(HostRuntime* runtime, const Recipe& recipe, const std::string& model_text,
                          const api::Model& model, const Dataset& data, bool require_same_bits);
  // Sets the trainer for all further calls.
  void SetTrainer(api::Trainer* trainer) { trainer_ = trainer; }

  // --- On rank 0, while the others follow ---

  // Sends the other ranks a request to take a step on this batch, and takes it. Sets *stop_wanted
  // if another rank has received a signal.
  absl::StatusOr<api::StepInfo> Step(int64_t batch,
                                     absl::FunctionRef<absl::StatusOr<api::StepInfo>()> step,
                                     bool* stop_wanted);
  // Calls `use`, which may write the trainer's states, and sends them to the other ranks.
  absl::Status WithStates(absl::FunctionRef<absl::Status()> use);
  // Makes Follow on the other ranks return `exit_code`. Must be the last call.
  absl::Status End(int exit_code);

  // --- On the other ranks ---

  // Executes the orders of rank 0 until it ends. Returns its exit code. `step` takes a step on a
  // batch; `wants_stop` is called after each step.
  absl::StatusOr<int> Follow(absl::FunctionRef<absl::Status(int64_t batch)> step,
                             const std::function<bool()>& wants_stop);

 private:
  struct Order;
  absl::Status BroadcastOrder(Order order);
  absl::Status ShareStates(absl::FunctionRef<absl::Status()> use);
  absl::Status CheckSameText(absl::string_view what, const std::string& mine) const;

  Launch* const launch_;
  api::Trainer* trainer_ = nullptr;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_TRAIN_RANKS_H_
