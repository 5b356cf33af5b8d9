// SPDX-License-Identifier: Apache-2.0
// metrics.csv: a row for every training step, below one header, appended during training.
//
//   step,loss,lr,grad_norm,tokens,nanoseconds,val_loss
//   1,3.4847229,0.01,2.0368955,8,64833,
//
// A cell is empty if the step has no such figure. Losses and norms are in the single precision in
// which they are computed, learning rates in that in which optimizers take them: the shortest text
// that reads back as the same float. val_loss is a double.
#ifndef PLUMB_RUNTIME_TRAIN_METRICS_H_
#define PLUMB_RUNTIME_TRAIN_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/formats/line_file.h"

namespace plumb {

// Figures of a step: a row of metrics.csv.
struct StepMetrics {
  int64_t step = 0;          // from 1
  float loss = 0;            // mean over the step's targets, in nats
  double learning_rate = 0;  // "lr" in the file
  float gradient_norm = 0;   // global, before clipping; "grad_norm" in the file
  int64_t tokens = 0;        // number of targets in the step
  double seconds = 0;        // duration of the step itself; whole nanoseconds in the file
  std::optional<double> val_loss;
};

// Appends to a metrics file. Owns the open file. Move-only; thread-compatible. Append does not
// allocate.
class MetricsWriter {
 public:
  // Writes the header if the file is new. Errors: those of LineWriter::Open and Append.
  // TruncateMetrics repairs a truncated row.
  static absl::StatusOr<MetricsWriter> Open(const std::string& path);

  // Hands one row to the operating system: all of it or, on an error, nothing.
  absl::Status Append(const StepMetrics& metrics);
  // Waits until the rows are on disk; called before writing a checkpoint.
  absl::Status Sync() { return lines_.Sync(); }

 private:
  explicit MetricsWriter(LineWriter lines) : lines_(std::move(lines)) {}

  LineWriter lines_;
};

// Reads the rows of `path`. Ignores a last row that a crash has truncated. Errors: NotFound;
// InvalidArgument if the run has the metrics.jsonl of an earlier plumb instead; DataLoss for an
// invalid row, with its line.
absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

// Drops the rows after `last_step`, and a truncated last row, when a run resumes from an earlier
// checkpoint. Kept rows keep their bytes; the file is replaced atomically, or left untouched if
// there is nothing to drop or no file. A damaged file is set aside and replaced by its readable
// rows. Returns a warning in this case, otherwise "". Errors: InvalidArgument, as ReadMetrics.
absl::StatusOr<std::string> TruncateMetrics(const std::string& path, int64_t last_step);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_METRICS_H_
