// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object per line for every training step, appended during training.
//
//   {"step":0,"loss":3.31,"lr":0.01,"grad_norm":1.2,"tokens":7,"seconds":0.004}
//
// and "val_loss" if it was measured. Numbers have the shortest text that reads back as the same
// double; NaN and infinity become null.
#ifndef PLUMB_RUNTIME_TRAIN_METRICS_H_
#define PLUMB_RUNTIME_TRAIN_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/formats/json_lines.h"

namespace plumb {

// Figures of a step: a line of metrics.jsonl.
struct StepMetrics {
  int64_t step = 0;          // from 1
  double loss = 0;           // mean over the step's targets, in nats
  double learning_rate = 0;  // "lr" in the file
  double gradient_norm = 0;  // global, before clipping; "grad_norm" in the file
  int64_t tokens = 0;        // number of targets in the step
  double seconds = 0;        // duration of the step itself
  std::optional<double> val_loss;
};

// Appends to a metrics file. Owns the open file. Move-only; thread-compatible. Append does not
// allocate.
class MetricsWriter {
 public:
  // Errors: those of JsonLinesWriter::Open. TruncateMetrics repairs a truncated line.
  static absl::StatusOr<MetricsWriter> Open(const std::string& path);

  // Hands one line to the operating system: all of it or, on an error, nothing.
  absl::Status Append(const StepMetrics& metrics);
  // Waits until the lines are on disk; called before writing a checkpoint.
  absl::Status Sync() { return lines_.Sync(); }

 private:
  explicit MetricsWriter(JsonLinesWriter lines) : lines_(std::move(lines)) {}

  JsonLinesWriter lines_;
};

// Reads the lines of `path`. Ignores a last line that a crash has truncated. Errors: NotFound;
// DataLoss for an invalid line, with its number.
absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

// Drops the lines after `last_step`, and a truncated last line, when a run resumes from an earlier
// checkpoint. Kept lines keep their bytes; the file is replaced atomically, or left untouched if
// there is nothing to drop or no file. A damaged file is set aside and replaced by its readable
// lines. Returns a warning in this case, otherwise "".
absl::StatusOr<std::string> TruncateMetrics(const std::string& path, int64_t last_step);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_METRICS_H_
