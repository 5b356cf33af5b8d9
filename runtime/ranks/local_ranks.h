// SPDX-License-Identifier: Apache-2.0
// Threads of one process as the ranks of a job, for tests. As strict as MPI may be: a send is over
// only when its receive has started, so what waits for one that never comes waits here too. A wait
// that can never end, for a rank that has returned or for oneself, is an error, so tests do not
// hang.
#ifndef PLUMB_RUNTIME_RANKS_LOCAL_RANKS_H_
#define PLUMB_RUNTIME_RANKS_LOCAL_RANKS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// The ranks 0 ... size - 1 of one job, each for one thread. A rank has returned when its
// communicator is destroyed. Rank r is on host "host<r>".
std::vector<std::unique_ptr<Communicator>> LocalRanks(int size);

// Calls `run` with each rank, on a thread of its own, and returns what it returned, in the order of
// ranks. If one returns an error the others' calls fail with kAborted.
std::vector<absl::Status> RunRanks(int size, const std::function<absl::Status(Communicator*)>& run);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_LOCAL_RANKS_H_
