// SPDX-License-Identifier: Apache-2.0
// Loads libplumb-mpi.so on demand. Neither plumb nor libplumb.so is linked with MPI.
#ifndef PLUMB_RUNTIME_RANKS_MPI_LIBRARY_H_
#define PLUMB_RUNTIME_RANKS_MPI_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// Returns this process's rank among those that the launcher started, using the libplumb-mpi.so at
// `file`. Destroying the communicator finalizes MPI, which is collective. Collective; at most once.
// Errors: kNotFound if the library, or the MPI that it is linked with, cannot be loaded;
// kUnavailable if MPI cannot be initialized; kUnimplemented if MPI allows only one thread.
absl::StatusOr<std::unique_ptr<Communicator>> JoinByMpi(const std::string& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_MPI_LIBRARY_H_
