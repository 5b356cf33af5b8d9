// SPDX-License-Identifier: Apache-2.0
// Divergences and loss spikes of a run. They are stored in the state of checkpoints, so that a
// resumed run continues like an uninterrupted one, and in incidents.jsonl, one object per line:
//
//   {"step":150,"batch":150,"kind":"skip","message":"diverged at step 150: the loss is nan;
//    ... (layer 3, mlp, slot norm; op norm ...); dropped batch 150"}
//
// kind is "spike", "skip", or "stop" if the run ended. `batch` counts
// all batches of the run from 1, including skipped ones, so it increases from line to line, while
// `step` may not.
#ifndef PLUMB_RUNTIME_TRAIN_RUN_INCIDENTS_H_
#define PLUMB_RUNTIME_TRAIN_RUN_INCIDENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/formats/line_file.h"
#include "runtime/train/spike_detector.h"

namespace plumb {

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

struct IncidentState {
  IncidentCounts counts;
  SpikeDetector losses;
  int64_t batches_skipped = 0;
  int64_t last_good = -1;  // step of the last good checkpoint; -1: none
};

// Write the incidents into a checkpoint's state, the JSON object `json`, and read them back.
// Errors: kDataLoss for invalid incidents. A checkpoint without incidents, from an older plumb, has
// the initial state.
std::string WithIncidents(const std::string& json, const IncidentState& state);
absl::StatusOr<IncidentState> ParseIncidents(const std::string& json);

struct IncidentLine {
  int64_t step = 0, batch = 0;
  const char* kind = "";
  std::string message;
};

// Writer of incidents.jsonl. Owns the file, which the first line creates. Thread-compatible.
class IncidentLog {
 public:
  explicit IncidentLog(std::string path) : path_(std::move(path)) {}
  absl::Status Append(const IncidentLine& line);
  absl::Status Sync();

 private:
  std::string path_;
  std::optional<LineWriter> lines_;
};

// Drops lines after `last_batch`, like TruncateMetrics.
absl::StatusOr<std::string> TruncateIncidents(const std::string& path, int64_t last_batch);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_RUN_INCIDENTS_H_
