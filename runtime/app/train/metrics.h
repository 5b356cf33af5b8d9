// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object a line for every training step, appended as it happens.
//
//   {"step":0,"loss":3.31,"lr":0.01,"grad_norm":1.2,"tokens":7,"seconds":0.004}
//
// and "val_loss" where one was measured. Numbers are the shortest that read back as the same
// double; what JSON has no number for (NaN, infinity) is null.
#ifndef PLUMB_RUNTIME_APP_TRAIN_METRICS_H_
#define PLUMB_RUNTIME_APP_TRAIN_METRICS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "runtime/formats/json_lines.h"

namespace plumb {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;  // mean over the step's targets, nats
  double lr = 0;
  double grad_norm = 0;  // global, before clipping
  int64_t tokens = 0;    // targets of the step
  double seconds = 0;    // of the step
  absl::optional<double> val_loss;
};

// Appends to a metrics file. Owns the open file; move-only; thread-compatible. Append allocates
// nothing.
class MetricsWriter {
 public:
  // Errors: as JsonLinesWriter::Open; TruncateMetrics mends a line that was cut short.
  static absl::StatusOr<MetricsWriter> Open(const std::string& path);

  // One line, handed to the operating system before this returns; all of it or, on an error, none.
  absl::Status Append(const StepMetrics& metrics);
  // Waits until the lines are on the disk: before a checkpoint that counts on them.
  absl::Status Sync() { return lines_.Sync(); }

 private:
  explicit MetricsWriter(JsonLinesWriter lines) : lines_(std::move(lines)) {}

  JsonLinesWriter lines_;
};

// The lines of `path`. NotFound without the file; DataLoss for a line that is none, with its
// number. A last line that was cut short by a crash is left out.
absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

// Drops the lines after `last_step`, and a truncated last line, when a run is resumed from an
// earlier checkpoint. Kept lines keep their bytes; the file is replaced atomically, and not
// touched when nothing is to be dropped. Without the file there is nothing to do. A damaged file
// is set aside, and the lines of it that can be read stay: a warning is returned, else "".
absl::StatusOr<std::string> TruncateMetrics(const std::string& path, int64_t last_step);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_METRICS_H_
