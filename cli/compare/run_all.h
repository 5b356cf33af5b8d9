// SPDX-License-Identifier: Apache-2.0
// RunAll: trains the runs of a plan, several at a time, each on its own threads.
#ifndef PLUMB_CLI_COMPARE_RUN_ALL_H_
#define PLUMB_CLI_COMPARE_RUN_ALL_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "runtime/app/host_runtime.h"
#include "runtime/ranks/communicator.h"

namespace plumb::cli {

struct RunAllOptions {
  Division division;
  bool quiet = false;
  // Creates a HostRuntime with this number of threads.
  std::function<absl::StatusOr<std::unique_ptr<HostRuntime>>(int threads)> create_runtime;
  // Returns true if the user asked to stop. null: never.
  std::function<bool()> interrupted;
  // Ranks that share the study, all of which call RunAll; null for one process. On rank 0 the
  // plan's directory is the study's; on the others it is a scratch directory, empty at the end.
  Communicator* ranks = nullptr;
};

// Trains every run that has not ended, from its last checkpoint if it has one. If it returns OK,
// every run of the plan's shard has a result (run_record.h); a run that diverges has one too.
// Results do not depend on the division, the ranks, or how often training was stopped.
// Errors: kCancelled, on rank 0, if any rank was interrupted; interrupted runs then have a
// checkpoint. Any other error stops all runs.
absl::Status RunAll(const Plan& plan, const RunAllOptions& options);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RUN_ALL_H_
