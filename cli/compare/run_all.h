// SPDX-License-Identifier: Apache-2.0
// RunAll: trains the runs of a plan, several at a time, each on threads of its own.
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
  // A HostRuntime that uses so many threads.
  std::function<absl::StatusOr<std::unique_ptr<HostRuntime>>(int threads)> create_runtime;
  // Whether somebody wants it to stop. null: nobody does.
  std::function<bool()> interrupted;
  // All call RunAll; null where there is one. The plan's directory is the study's on rank 0, and
  // on the others one of their own, in which nothing stays.
  Communicator* ranks = nullptr;
};

// Trains what has not ended, from its last checkpoint if it has one. When it returns OK every run
// of the plan's shard has a result (run_record.h); a run that diverges has one too. kCancelled, on
// rank 0: it was interrupted, on any rank; what ran has a checkpoint then. Other errors stop the
// others as well. What comes out depends neither on the division nor on the ranks nor on how often
// it was stopped.
absl::Status RunAll(const Plan& plan, const RunAllOptions& options);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RUN_ALL_H_
