// SPDX-License-Identifier: Apache-2.0
// RunRecord: how a run ended and its losses, read from its directory. This is the only reader, for
// runs of studies and of plumb train: a study writes result.json when a run has ended; otherwise
// metrics.csv, incidents.jsonl and the recipe say how far the run came.
//
//   result.json: {"format": "plumb-compare-run", "version": 1, "status": "finished" | "diverged",
//     "step": 1000, "message": "", "validation": 2.31 | null, "spikes": 0, "skips": 0,
//     "samples": [{"text": "emma", "degenerate": ""}]}
#ifndef PLUMB_RUNTIME_STUDY_RUN_RECORD_H_
#define PLUMB_RUNTIME_STUDY_RUN_RECORD_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/study/run_probes.h"

namespace plumb {

struct RunSample {
  std::string text, degenerate;  // degenerate: the reason, or ""
};

enum class RunStatus { kFinished, kDiverged, kInterrupted };
const char* StatusName(RunStatus status);  // "finished" ...

struct RunResult {
  RunStatus status = RunStatus::kFinished;
  int64_t step = 0;     // last step, including the one that diverged
  std::string message;  // reason of the divergence
  std::optional<double> validation;
  int64_t spikes = 0, skips = 0;  // see IncidentCounts
  std::vector<RunSample> samples;
};

struct RunRecord {
  bool is_present = true;   // false for a run that a report of found runs does not have
  bool has_result = false;  // true if result.json says how the run ended
  RunResult result;
  std::vector<double> losses;                          // one per step, from step 1
  std::vector<std::pair<int64_t, double>> validation;  // (step, loss) during training
  double seconds = 0;                                  // sum of the step times
  int64_t tokens = 0;
  std::optional<RunProbes> probes;
  std::string products;  // engines that multiplied matrices, from run.json; "" if not recorded

  double TokensPerSecond() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

// Reads result.json. Returns: nullopt if the run has not ended, or if the file is not a valid
// result, so that the run must be trained again. Errors: a failure of the system, which does not
// mean that there is no result.
absl::StatusOr<std::optional<RunResult>> ReadRunResult(const std::string& directory);
absl::Status WriteRunResult(const std::string& directory, const RunResult& result);

// Reads the whole record of a run, which may still be in progress. Errors: those of ReadMetrics,
// but no file is no step; kDataLoss if metrics.csv lacks steps, with their numbers.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& directory);

// Returns the reason why `text` is degenerate (empty or repetitive); "" if it is not.
std::string Degenerate(const std::string& text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_RUN_RECORD_H_
