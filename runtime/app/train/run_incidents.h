// SPDX-License-Identifier: Apache-2.0
// What a run remembers of its divergences and spikes: in the state of its checkpoints, so that a
// resumed run goes on as one that was not interrupted, and in incidents.jsonl, one object a line:
//
//   {"step":150,"batch":150,"kind":"step_back","message":"diverged at step 150: the loss is nan;
//   ...
//    (layer 3, mlp, slot norm; op norm ...)","back_to":100}
//
// kind is "spike", "skip", "step_back" (with back_to), or "stop" when the run ended. `batch` counts
// all batches of the run from 1, those that were left out too, so it grows from line to line where
// `step` need not. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_RUN_INCIDENTS_H_
#define PLUMB_RUNTIME_APP_TRAIN_RUN_INCIDENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/train/spike_detector.h"
#include "runtime/app/train/train.h"
#include "runtime/formats/json_lines.h"

namespace plumb {

struct IncidentState {
  IncidentCounts counts;
  SpikeDetector losses;
  int64_t batches_skipped = 0;
  double learning_rate_scale = 1;
  int64_t last_good = -1;  // step of the last good checkpoint; -1: there is none
};

// The state of a checkpoint with and out of it: `json` is a JSON object. kDataLoss for incidents
// that are none; a checkpoint from before they were recorded has had none.
std::string WithIncidents(const std::string& json, const IncidentState& state);
absl::StatusOr<IncidentState> IncidentsOf(const std::string& json);

struct IncidentLine {
  int64_t step = 0, batch = 0;
  const char* kind = "";
  std::string message;
  std::optional<int64_t> back_to;
};

// Owns the file, which is made when there is a first line. Thread-compatible.
class IncidentLog {
 public:
  explicit IncidentLog(std::string path) : path_(std::move(path)) {}
  absl::Status Append(const IncidentLine& line);
  absl::Status Sync();

 private:
  std::string path_;
  std::optional<JsonLinesWriter> lines_;
};

// Drops what was written after `last_batch`; as TruncateMetrics.
absl::StatusOr<std::string> TruncateIncidents(const std::string& path, int64_t last_batch);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_RUN_INCIDENTS_H_
