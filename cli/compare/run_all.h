// RunAll: trains the runs of a plan, several at a time, each on threads of its own.
#ifndef PLUMB_CLI_COMPARE_RUN_ALL_H_
#define PLUMB_CLI_COMPARE_RUN_ALL_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "plumb/runtime.h"

namespace plumb::cli {

struct RunAllOptions {
  int threads = 1;  // in all
  bool quiet = false;
  // A Runtime that uses so many threads.
  std::function<absl::StatusOr<std::unique_ptr<Runtime>>(int threads)> create_runtime;
};

// Trains what has not ended, from its last checkpoint if it has one. When it returns OK every run
// has a result (run_record.h); a run that diverges has one too. kCancelled: Ctrl-C or SIGTERM; what
// ran has a checkpoint then. Other errors stop the others as well. What comes out depends neither
// on `threads` nor on how often it was stopped.
absl::Status RunAll(const Plan& plan, const RunAllOptions& options);

// How many runs train at a time, and on how many threads each, for `runs` runs of models with up to
// `parameters` parameters.
struct Division {
  int workers = 1, threads = 1;
};
Division Divide(int threads, size_t runs, int64_t parameters);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RUN_ALL_H_
