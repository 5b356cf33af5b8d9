// SPDX-License-Identifier: Apache-2.0
// Fuzzes the metrics and probes of a run: damaged lines are moved to another file, the others can
// be read, and truncating twice changes no more than truncating once.
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/train/metrics.h"
#include "runtime/train/probe_log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch.h"

namespace plumb {
namespace {

PLUMB_FUZZER(metrics) {
  static const FuzzScratch* const scratch = new FuzzScratch("metrics");
  FuzzBytes bytes(data, size < 2 ? size : 2);
  const int64_t last_step = bytes.Below(20);
  const absl::string_view content = size < 2 ? "" : AsText(data + 2, size - 2);
  scratch->Clear();
  const std::string path = scratch->Write("metrics.csv", content);
  const auto before = ReadMetrics(path);
  const auto truncated = TruncateMetrics(path, last_step);
  PLUMB_CHECK(truncated.ok(), "metrics cannot be cut back");
  const auto after = ReadMetrics(path);
  PLUMB_CHECK(after.ok(), "metrics that were cut back do not read");
  for (const StepMetrics& line : *after) {
    PLUMB_CHECK(line.step <= last_step, "a step that was to go");
  }
  if (before.ok()) PLUMB_CHECK(truncated->empty(), "a warning about metrics that read");
  const auto twice = TruncateMetrics(path, last_step);
  PLUMB_CHECK(twice.ok() && twice->empty(), "metrics are damaged again");
  PLUMB_CHECK(MetricsWriter::Open(path).ok(), "metrics do not continue");

  const std::string probes = scratch->Write("probes.jsonl", content);
  PLUMB_CHECK(TruncateProbes(probes, last_step).ok(), "probes cannot be cut back");
  PLUMB_CHECK(ProbeWriter::Open(probes).ok(), "probes do not continue");
}

}  // namespace
}  // namespace plumb
