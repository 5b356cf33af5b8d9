// SPDX-License-Identifier: Apache-2.0
// RunRecord: the outcome of a run of a study, read from its directory: result.json (written by the
// study when the run has ended), metrics.jsonl and probes.jsonl.
//
//   result.json: {"format": "plumb-compare-run", "version": 1, "status": "finished" | "diverged",
//     "step": 1000, "message": "", "validation": 2.31 | null, "spikes": 0, "skips": 0,
//     "samples": [{"text": "emma", "degenerate": ""}]}
#ifndef PLUMB_RUNTIME_APP_STUDY_RUN_RECORD_H_
#define PLUMB_RUNTIME_APP_STUDY_RUN_RECORD_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/study/run_probes.h"

namespace plumb {

struct RunSample {
  std::string text, degenerate;  // degenerate: the reason, or ""
};

struct RunResult {
  bool diverged = false;
  int64_t step = 0;     // last step, including the one that diverged
  std::string message;  // reason of the divergence
  std::optional<double> validation;
  int64_t spikes = 0, skips = 0;  // see IncidentCounts
  std::vector<RunSample> samples;
};

struct RunRecord {
  bool is_present = true;  // false for a run that a report of found runs does not have
  RunResult result;
  std::vector<double> losses;                          // one per step, from step 1
  std::vector<std::pair<int64_t, double>> validation;  // (step, loss) during training
  double seconds = 0;                                  // sum of the step times
  int64_t tokens = 0;
  std::vector<double> seconds_by_step, tokens_by_step;  // cumulative, parallel to `losses`
  std::string metrics;  // lines of metrics.jsonl without times, each with `head`
  std::optional<RunProbes> probes;
  std::string products;  // engines that multiplied matrices, from run.json; "" if not recorded

  double TokensPerSecond() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

// Reads result.json. Returns: nullopt if the run has not ended, or if the file is not a valid
// result, so that the run must be trained again. Errors: a failure of the system, which does not
// mean that there is no result.
absl::StatusOr<std::optional<RunResult>> ReadRunResult(const std::string& directory);
absl::Status WriteRunResult(const std::string& directory, const RunResult& result);

// Reads the whole record of a run that has ended. `head` begins each line of `metrics`:
// "\"group\":\"pre\",\"seed\":1". Errors: kDataLoss if the metrics do not cover all steps that the
// result counts.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& directory, const std::string& head);
// Reads a run that plumb train has written, or still writes, and that has no result.json: the
// steps so far, and the last validation loss.
absl::StatusOr<RunRecord> ReadTrainedRun(const std::string& directory, const std::string& head);

// Returns the reason why `text` is degenerate (empty or repetitive); "" if it is not.
std::string Degenerate(const std::string& text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_RUN_RECORD_H_
