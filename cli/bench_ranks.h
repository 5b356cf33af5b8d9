// SPDX-License-Identifier: Apache-2.0
// plumb bench --ranks: the time of a training step on many ranks, predicted from what each rank
// measures alone and the link between them, beside what the ranks that are there measure.
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
  std::string model;         // its path
  std::string counts, link;  // --ranks, --link; "": the ranks, or the link, that are there
  bool fixed_batch = false;  // a step's batch is shared; else each rank has one
  int64_t rounds = 7;
  bool profile = false, json = false;
  TrainBenchRequest request;                              // of one rank
  std::function<void(const std::string& what)> progress;  // never null
};

// All ranks of the job call it; the first prints. kInvalidArgument: counts or link that are none,
// or more ranks than units of a fixed batch.
absl::StatusOr<int> BenchRanks(const RankBenchOptions& options, const ModelSource& model,
                               HostRuntime* runtime, Launch* launch, const Interrupts& interrupts);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_BENCH_RANKS_H_
