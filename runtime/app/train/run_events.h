// SPDX-License-Identifier: Apache-2.0
// TensorBoard event file of one session of a training run: the content of metrics.jsonl and a
// description of the run. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_RUN_EVENTS_H_
#define PLUMB_RUNTIME_APP_TRAIN_RUN_EVENTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/train/recipe.h"
#include "runtime/app/train/train.h"
#include "runtime/formats/event_file.h"

namespace plumb {

// Writer of one event file. Owns the file. Thread-compatible.
class RunEvents {
 public:
  // Creates a file in the directory `run` with the texts "equations", "model.pbtxt" and
  // "train.pbtxt", for steps starting at `first_step`.
  static absl::StatusOr<std::unique_ptr<RunEvents>> Open(const std::string& run,
                                                         const api::Model& model,
                                                         const Recipe& recipe, int64_t first_step,
                                                         const std::function<double()>& clock);

  // Adds the scalars "train/loss", "train/lr", "train/grad_norm" and "train/tokens_per_second", and
  // "val/loss" if it was measured; of a probed step also figures of probes.jsonl, under their path
  // there: "activations/logits/rms". Buffers them for a few seconds, or until a val/loss.
  absl::Status Add(const StepReport& report);
  absl::Status Sync() { return file_.Sync(); }

 private:
  absl::Status AddProbe(const ProbeFigures& probe);

  explicit RunEvents(EventFile file) : file_(std::move(file)) {}
  EventFile file_;
};

// Returns the system time in seconds since 1970-01-01 UTC.
double SystemSeconds();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_RUN_EVENTS_H_
