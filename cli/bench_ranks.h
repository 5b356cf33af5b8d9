// SPDX-License-Identifier: Apache-2.0
// plumb bench --ranks: predicts the time of a training step on many ranks from what each rank
// measures alone and from the link between ranks, and compares it with a measurement on the ranks
// of the current job.
#ifndef PLUMB_CLI_BENCH_RANKS_H_
#define PLUMB_CLI_BENCH_RANKS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/interrupt.h"
#include "runtime/app/bench/bench.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/launch/launch.h"
#include "runtime/app/model.h"

namespace plumb::cli {

struct RankBenchOptions {
  std::string model;         // path
  std::string counts, link;  // --ranks, --link; "": the job's own ranks or measured link
  bool fixed_batch = false;  // all ranks share one step's batch; else each rank has its own
  int64_t rounds = 7;
  bool profile = false, json = false;
  TrainBenchRequest request;                              // for one rank
  std::function<void(const std::string& what)> progress;  // never null
};

// Measures and predicts; rank 0 prints the table. Collective. Returns: the exit code. Errors:
// kInvalidArgument for malformed counts or link, or for more ranks than a fixed batch has units.
absl::StatusOr<int> BenchRanks(const RankBenchOptions& options, const ModelSource& model,
                               HostRuntime* runtime, Launch* launch, const Interrupts& interrupts);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_BENCH_RANKS_H_
