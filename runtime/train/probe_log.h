// SPDX-License-Identifier: Apache-2.0
// probes.jsonl: one JSON object per line for every probed step, appended during training.
//
//   {"step":100,
//    "activations":{"logits":{"rms":0.9,"max":3.1,"mean":0.01,"nonfinite":0}, ...},
//    "gradients":{...the same, by the same names...},
//    "parameters":{"head.weight":{"rms":0.1,"max":0.4,"grad_norm":0.2,"grad_rms":0.01,
//                                 "grad_max":0.1,"grad_mean":0,"grad_nonfinite":0}, ...}}
//
// and "diverged":true after the step that diverged. A parameter may also have "update_rms",
// "update_ratio" and "spectral_norm", and a learned value "value_mean", "value_min" and
// "value_max" (ProbedParameter). Names are in the order of the data. rms, max
// (of the magnitude) and mean are taken over the finite elements, 0 if there are none, and have the
// shortest text that reads back as the same float; grad_norm is the L2 norm.
#ifndef PLUMB_RUNTIME_TRAIN_PROBE_LOG_H_
#define PLUMB_RUNTIME_TRAIN_PROBE_LOG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/probe.h"
#include "runtime/formats/line_file.h"

namespace plumb {

// Appends to a probe file. Owns the open file. Move-only; thread-compatible. Append does not
// allocate after the first line.
class ProbeWriter {
 public:
  // Errors: those of LineWriter::Open. TruncateProbes repairs a truncated line.
  static absl::StatusOr<ProbeWriter> Open(const std::string& path);

  // Appends a line like MetricsWriter::Append. Requires: all figures come from the same probe.
  absl::Status Append(const ProbeFigures& figures);
  absl::Status Sync() { return lines_.Sync(); }

 private:
  explicit ProbeWriter(LineWriter lines) : lines_(std::move(lines)) {}

  void Prepare(const ProbeFigures& figures);

  LineWriter lines_;
  std::vector<std::string> names_;  // names as they appear in a line
  std::string line_;                // buffer with the max length of a line
};

// Drops lines after `last_step`, like TruncateMetrics.
absl::StatusOr<std::string> TruncateProbes(const std::string& path, int64_t last_step);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_PROBE_LOG_H_
