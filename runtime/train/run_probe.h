// SPDX-License-Identifier: Apache-2.0
// Probes of a run: the user's options in run.json, and the figures of its steps for probes.jsonl
// and the public headers.
#ifndef PLUMB_RUNTIME_TRAIN_RUN_PROBE_H_
#define PLUMB_RUNTIME_TRAIN_RUN_PROBE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/plumb_api.h"
#include "runtime/client/probe.h"
#include "runtime/train/probe_log.h"
#include "runtime/train/weight_figures.h"

namespace plumb {

// Write the options into the JSON object of run.json and read them back. Errors: kDataLoss for
// invalid options.
std::string WithProbe(const std::string& json, const ProbeOptions& options);
absl::StatusOr<ProbeOptions> ParseProbe(const std::string& json);

// Collects and writes the figures of probed steps. Thread-compatible.
class RunProbe {
 public:
  // `path`: probes.jsonl, created by the first line; "": no file is written. `weights`: figures to
  // add, or null.
  RunProbe(std::string path, WeightFigures* weights) : path_(std::move(path)), weights_(weights) {}

  // Must be called before a step that is probed.
  absl::Status BeginStep(api::Trainer* trainer) {
    return weights_ == nullptr ? absl::OkStatus() : weights_->BeginStep(trainer);
  }
  // Writes the figures of the trainer's last step and returns them, valid until the next call, or
  // null if the step was not probed. Does not allocate while the points stay the same.
  absl::StatusOr<const ProbeFigures*> Take(api::Trainer* trainer, bool diverged);
  absl::Status Sync();

 private:
  std::string path_;
  WeightFigures* const weights_;
  std::optional<ProbeWriter> writer_;
  ProbeFigures figures_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_RUN_PROBE_H_
