// SPDX-License-Identifier: Apache-2.0
// MPI, in a library of its own that is loaded when it is wanted: libplumb-mpi.so. Neither plumb nor
// libplumb.so is linked with MPI.
#ifndef PLUMB_RUNTIME_RANKS_MPI_LIBRARY_H_
#define PLUMB_RUNTIME_RANKS_MPI_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// The ranks that the launcher of this process started, by the libplumb-mpi.so of `file`. All ranks
// call it, once. MPI is finalized, together with all ranks, when the communicator is destroyed.
// Errors: kNotFound where the library, or the MPI that it is linked with, cannot be loaded;
// kUnavailable where MPI does not begin.
absl::StatusOr<std::unique_ptr<Communicator>> JoinByMpi(const std::string& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_MPI_LIBRARY_H_
