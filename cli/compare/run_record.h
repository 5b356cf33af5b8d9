// SPDX-License-Identifier: Apache-2.0
// RunRecord: what a run of a study came to, as its directory tells: result.json (written by the
// study when the run has ended), metrics.jsonl and probes.jsonl.
//
//   result.json: {"format": "plumb-compare-run", "version": 1, "status": "finished" | "diverged",
//     "step": 1000, "message": "", "validation": 2.31 | null, "spikes": 0, "skips": 0,
//     "step_backs": 0,
//     "samples": [{"text": "emma", "degenerate": ""}]}
#ifndef PLUMB_CLI_COMPARE_RUN_RECORD_H_
#define PLUMB_CLI_COMPARE_RUN_RECORD_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb::cli {

struct RunSample {
  std::string text, degenerate;  // degenerate: "", or why the text is
};

struct RunResult {
  bool diverged = false;
  int64_t step = 0;     // the last one, the one that diverged included
  std::string message;  // why it diverged
  std::optional<double> validation;
  int64_t spikes = 0, skips = 0, step_backs = 0;  // as IncidentCounts
  std::vector<RunSample> samples;
};

// Figures of the layers at the steps that were probed.
struct RunProbes {
  std::vector<int64_t> steps;
  std::vector<std::string> layers;                               // "layers.0"
  std::vector<std::vector<double>> gradient_norm, residual_rms;  // [step][layer]; NaN: no figure
};

struct RunRecord {
  RunResult result;
  std::vector<double> losses;                          // of the steps from 1
  std::vector<std::pair<int64_t, double>> validation;  // while training
  double seconds = 0;                                  // inside steps
  int64_t tokens = 0;
  std::string metrics;  // lines of metrics.jsonl as members of an object: without braces or times
  std::optional<RunProbes> probes;

  double TokensPerSecond() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

// nullopt: the run has not ended, or what it left as its result is none and must be made again.
// Errors: of the system, which do not say that there is no result.
absl::StatusOr<std::optional<RunResult>> ReadRunResult(const std::string& directory);
absl::Status WriteRunResult(const std::string& directory, const RunResult& result);

// kDataLoss when the directory's files do not tell of all steps that the result says were done.
// `head` begins each line of `metrics`: "\"group\":\"pre\",\"seed\":1".
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& directory, const std::string& head);

// "", or why `text` is not worth reading.
std::string Degenerate(const std::string& text);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RUN_RECORD_H_
