/* SPDX-License-Identifier: Apache-2.0 */
/* Exports of libplumb-mpi.so, the only part of plumb that is linked with an MPI library. Nothing is
 * linked with it: plumb loads it if a launcher has started the process (ranks/launch.h).
 *
 * It is a single C file over plumb.h and MPI 3, so that it can be built for another MPI than the
 * one that plumb was built with; PLUMB_MPI_LIBRARY then names it:
 *
 *   mpicc -shared -fPIC -O2 -I <include directory of plumb.h> plumb_mpi.c -o libplumb-mpi.so
 */
#ifndef PLUMB_MPI_H_
#define PLUMB_MPI_H_

#include "plumb.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `*communicator`, whose struct_size the caller has set, with the ranks of MPI_COMM_WORLD if
 * `comm` is NULL, else of the MPI_Comm that it points to. The communicator is duplicated, so that
 * its messages are separate. Initializes MPI if nobody has. Collective. Its functions may be called
 * from any thread, but only from one at a time. On an error, writes a message of up to `capacity`
 * bytes to `problem`. */
PLUMB_API plumb_status plumb_mpi_communicator(const void* comm, plumb_communicator* communicator,
                                              char* problem, size_t capacity);

/* Frees the communicator, and finalizes MPI if plumb_mpi_communicator initialized it. Collective.
 */
PLUMB_API void plumb_mpi_release(plumb_communicator* communicator);

#ifdef __cplusplus
}
#endif

#endif /* PLUMB_MPI_H_ */
