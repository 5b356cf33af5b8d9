// RunAll: trains the runs of a plan, several at a time, each on threads of its own.
#ifndef PLUMB_CLI_COMPARE_RUN_ALL_H_
#define PLUMB_CLI_COMPARE_RUN_ALL_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "cli/compare/requirements.h"
#include "runtime/tools/host_runtime.h"

namespace plumb::cli {

struct RunAllOptions {
  Division division;
  bool quiet = false;
  // A HostRuntime that uses so many threads.
  std::function<absl::StatusOr<std::unique_ptr<HostRuntime>>(int threads)> create_runtime;
};

// Trains what has not ended, from its last checkpoint if it has one. When it returns OK every run
// has a result (run_record.h); a run that diverges has one too. kCancelled: Ctrl-C or SIGTERM; what
// ran has a checkpoint then. Other errors stop the others as well. What comes out depends neither
// on the division nor on how often it was stopped.
absl::Status RunAll(const Plan& plan, const RunAllOptions& options);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RUN_ALL_H_
