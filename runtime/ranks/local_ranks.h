// SPDX-License-Identifier: Apache-2.0
// Threads of one process as the ranks of a job, for tests and for SingleRank(). It is as strict as
// MPI may be: a send completes only after its receive was started, so code that deadlocks with MPI
// blocks here too. A wait that can never end, because the peer has returned or is the rank itself,
// is an error instead, so that tests do not hang.
#ifndef PLUMB_RUNTIME_RANKS_LOCAL_RANKS_H_
#define PLUMB_RUNTIME_RANKS_LOCAL_RANKS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// Returns the ranks 0 ... size - 1 of one job, each for use by one thread. A rank has left the job
// when its communicator is destroyed. Rank r is on host "host<r>"; a single rank is on this
// machine.
std::vector<std::unique_ptr<Communicator>> LocalRanks(int size);

// Calls `run` with each rank on a separate thread and returns the results ordered by rank. If one
// returns an error, the other ranks' calls fail with kAborted.
std::vector<absl::Status> RunRanks(int size, const std::function<absl::Status(Communicator*)>& run);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_LOCAL_RANKS_H_
