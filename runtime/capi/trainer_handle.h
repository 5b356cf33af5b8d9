// SPDX-License-Identifier: Apache-2.0
// plumb_trainer: the object behind the handle. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_TRAINER_HANDLE_H_
#define PLUMB_RUNTIME_CAPI_TRAINER_HANDLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/host_batch_source.h"
#include "runtime/capi/measurements.h"
#include "runtime/formats/safetensors.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/train_session.h"
#include "runtime/spec/train_spec.h"

struct plumb_trainer {
  std::shared_ptr<plumb::capi::ModelState> model;
  plumb::TrainSpec spec;
  int64_t seq = 0;
  std::unique_ptr<plumb::Communicator> ranks;       // null: this process alone
  plumb::capi::HostBatchSource* batches = nullptr;  // owned by the session
  std::unique_ptr<plumb::TrainSession> session;
  std::atomic<bool> cancelled{false};
  bool has_gradients = false;
  bool busy = false;           // during a call
  bool in_pass = false;        // during a loss or probe callback
  bool probe_stops = false;    // the probe callback of this step returned nonzero
  bool shares_states = false;  // during plumb_trainer_share_states

  // Tensors of the state by kind (PLUMB_STATE_MODEL, ...), as for a file.
  std::vector<plumb::TensorToWrite> state[2];

  plumb::capi::ProfileRows profile;

  ~plumb_trainer() {
    if (session != nullptr) --model->trainers;
  }
  int64_t step_tokens() const { return spec.gradient_accumulation_steps * spec.batch_size * seq; }
};

inline const plumb::capi::RuntimeState& GetRuntime(const plumb_trainer& trainer) {
  return *trainer.model->runtime;
}

namespace plumb::capi {

// Fails in the middle of a step, where states and gradients belong to no step.
inline absl::Status CheckBetweenSteps(const plumb_trainer& trainer) {
  if (!trainer.in_pass) return absl::OkStatus();
  return absl::FailedPreconditionError("the trainer is in the middle of a step");
}

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_TRAINER_HANDLE_H_
