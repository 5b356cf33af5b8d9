// SPDX-License-Identifier: Apache-2.0
// The probes of a run: the user's options, as recorded in run.json, and the figures of its steps,
// to probes.jsonl and the public headers. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_RUN_PROBE_H_
#define PLUMB_RUNTIME_APP_TRAIN_RUN_PROBE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/plumb_api.h"
#include "runtime/app/probe.h"
#include "runtime/app/train/probe_log.h"

namespace plumb {

// run.json with and out of it: `json` is a JSON object. kDataLoss for probes that are none.
std::string WithProbe(const std::string& json, const ProbeOptions& options);
absl::StatusOr<ProbeOptions> ProbeOf(const std::string& json);

TensorFigures FiguresOf(const api::ProbeInfo& probe);

// Thread-compatible.
class RunProbe {
 public:
  // `path`: of probes.jsonl; "": no file is written. A file is made when there is a first line.
  explicit RunProbe(std::string path) : path_(std::move(path)) {}

  // Writes the figures of the trainer's last step, and gives them as they are public, until the
  // next call; null if it was not probed. Those with the same points as the last time allocate
  // nothing.
  absl::StatusOr<const ProbeFigures*> Take(const api::Trainer& trainer, bool diverged);
  absl::Status Sync();

 private:
  std::string path_;
  std::optional<ProbeWriter> writer_;
  ProbeFigures figures_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_RUN_PROBE_H_
