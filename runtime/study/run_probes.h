// SPDX-License-Identifier: Apache-2.0
// RunProbes: figures of each layer at the probed steps of a run, from probes.jsonl
// (docs/report.md). A value.
#ifndef PLUMB_RUNTIME_STUDY_RUN_PROBES_H_
#define PLUMB_RUNTIME_STUDY_RUN_PROBES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

// Figure of one kind.
struct ProbeSeries {
  std::string name;         // "attention entropy"
  bool is_log = true;       // positive, and compared by factors
  bool is_largest = false;  // the figure of several layers is the largest and not the mean
  std::vector<std::vector<double>> values;  // [step][layer]; NaN: no figure
};

struct RunProbes {
  std::vector<int64_t> steps;
  std::vector<std::string> layers;  // "layers.0"
  std::vector<ProbeSeries> series;  // in the order of docs/report.md; each has a figure

  const ProbeSeries* Find(absl::string_view name) const;  // null if there is none
};

// Reads probes.jsonl up to `last_step`. Skips malformed lines. Returns nullopt without any figure.
std::optional<RunProbes> ParseProbes(const std::string& text, int64_t last_step);

// Returns the means over runs, geometric ones where figures are compared by factors. A step or a
// layer that only some runs have is a mean over these. Requires: `runs` is not empty.
RunProbes MeanProbes(const std::vector<const RunProbes*>& runs);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_RUN_PROBES_H_
