// What the runs of a plan that have not ended take: how many train at a time, their memory, the
// disk.
#ifndef PLUMB_CLI_COMPARE_REQUIREMENTS_H_
#define PLUMB_CLI_COMPARE_REQUIREMENTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "runtime/tools/host_runtime.h"

namespace plumb::cli {

struct Division {
  int workers = 1, threads = 1;  // runs at a time, and the threads of each
};

// For `runs` runs that take up to `memory` bytes each, of `available`. Runs side by side are faster
// than one on all threads (measured up to 25 million parameters). Some memory is left
// for their data, samples and threads.
Division Divide(int threads, size_t runs, int64_t memory, int64_t available);

struct Requirements {
  size_t runs = 0, ended = 0;  // of the shard; those that have a result
  Division division;
  int64_t memory = 0;      // bytes, of the runs at a time
  int64_t disk = 0;        // bytes, of the runs that have not ended
  int64_t free_disk = -1;  // -1: not known
  MemoryRoom room;
};

// Errors: of the system.
absl::StatusOr<Requirements> RequirementsOf(const Plan& plan, int threads);

// kResourceExhausted when the disk has no room. (That a run's memory is there, MakePlan has seen.)
absl::Status CheckFits(const Requirements& requirements, const Plan& plan);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_REQUIREMENTS_H_
