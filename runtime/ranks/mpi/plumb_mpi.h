/* SPDX-License-Identifier: Apache-2.0 */
/* What libplumb-mpi.so exports. It is the only part of plumb that is linked with an MPI library,
 * and nothing is linked with it: plumb loads it when a launcher has started it
 * (ranks/mpi_library.h).
 *
 * It is one file of C over plumb.h and MPI 3, so that it can be built for another MPI than the one
 * that plumb was built with, and named by PLUMB_MPI_LIBRARY:
 *
 *   mpicc -shared -fPIC -O2 -I <include directory of plumb.h> plumb_mpi.c -o libplumb-mpi.so
 */
#ifndef PLUMB_MPI_H_
#define PLUMB_MPI_H_

#include "plumb.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `*communicator`, of which the caller has set struct_size, with the ranks of MPI_COMM_WORLD,
 * or of the MPI_Comm that `comm` points to; a duplicate, so its messages do not meet others.
 * Initializes MPI if nobody has. All ranks call it. Its functions may be called from any thread, by
 * one at a time. On an error: what failed, to `problem`, of `capacity` bytes. */
PLUMB_API plumb_status plumb_mpi_communicator(const void* comm, plumb_communicator* communicator,
                                              char* problem, size_t capacity);

/* Frees it, and finalizes MPI if plumb_mpi_communicator has initialized it. All ranks call it. */
PLUMB_API void plumb_mpi_release(plumb_communicator* communicator);

#ifdef __cplusplus
}
#endif

#endif /* PLUMB_MPI_H_ */
