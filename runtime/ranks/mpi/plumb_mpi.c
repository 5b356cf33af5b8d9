/* SPDX-License-Identifier: Apache-2.0 */
#include "plumb_mpi.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MPI counts are ints, so a longer message is one element of a type made of pieces of this size. */
enum { kPieceBytes = 1 << 30 };

typedef struct {
  MPI_Comm comm;
  int initialized; /* nonzero if this library initialized MPI */
  char host[MPI_MAX_PROCESSOR_NAME];
  char error[MPI_MAX_ERROR_STRING + 128];
} Job;

typedef struct {
  MPI_Request request;
  size_t size;
  int peer;
  int tag;
  int receives;
} Transfer;

/* Returns the status for an MPI error and writes its message to job->error. */
static plumb_status Failed(Job* job, const char* what, int peer, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = 0;
  if (peer >= 0) {
    snprintf(job->error, sizeof(job->error), "%s rank %d: MPI: %s", what, peer, text);
  } else {
    snprintf(job->error, sizeof(job->error), "%s: MPI: %s", what, text);
  }
  int class = MPI_ERR_OTHER;
  MPI_Error_class(code, &class);
  return class == MPI_ERR_TRUNCATE ? PLUMB_STATUS_INTERNAL : PLUMB_STATUS_UNAVAILABLE;
}

static plumb_status OutOfMemory(Job* job) {
  snprintf(job->error, sizeof(job->error), "out of memory for a message");
  return PLUMB_STATUS_RESOURCE_EXHAUSTED;
}

/* Sets `*type` and `*count` for a message of `size` bytes. The caller frees a type that is not
 * MPI_BYTE. */
static int GetType(size_t size, MPI_Datatype* type, int* count) {
  *type = MPI_BYTE;
  *count = (int)size;
  if (size <= kPieceBytes) return MPI_SUCCESS;
  const size_t pieces = size / kPieceBytes, rest = size % kPieceBytes;
  MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
  int failure = MPI_Type_contiguous(kPieceBytes, MPI_BYTE, &parts[0]);
  if (failure != MPI_SUCCESS) return failure;
  int lengths[2] = {(int)pieces, (int)rest};
  MPI_Aint places[2] = {0, (MPI_Aint)(pieces * kPieceBytes)};
  failure = MPI_Type_create_struct(2, lengths, places, parts, type);
  MPI_Type_free(&parts[0]);
  if (failure == MPI_SUCCESS) failure = MPI_Type_commit(type);
  *count = 1;
  return failure;
}

static plumb_status Start(Job* job, int receives, int peer, int tag, void* data, size_t size,
                          void** transfer) {
  Transfer* const started = malloc(sizeof(*started));
  if (started == NULL) return OutOfMemory(job);
  started->size = size;
  started->peer = peer;
  started->tag = tag;
  started->receives = receives;
  MPI_Datatype type = MPI_BYTE;
  int count = 0;
  int failure = GetType(size, &type, &count);
  if (failure == MPI_SUCCESS) {
    failure = receives ? MPI_Irecv(data, count, type, peer, tag, job->comm, &started->request)
                       : MPI_Isend(data, count, type, peer, tag, job->comm, &started->request);
  }
  if (type != MPI_BYTE && type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  if (failure != MPI_SUCCESS) {
    free(started);
    return Failed(job, receives ? "receiving from" : "sending to", peer, failure);
  }
  *transfer = started;
  return PLUMB_OK;
}

static plumb_status StartSend(void* context, int32_t to, int32_t tag, const void* data, size_t size,
                              void** transfer) {
  return Start(context, 0, to, tag, (void*)data, size, transfer);
}

static plumb_status StartReceive(void* context, int32_t from, int32_t tag, void* data, size_t size,
                                 void** transfer) {
  return Start(context, 1, from, tag, data, size, transfer);
}

/* Checks and frees a transfer that has completed or failed. */
static plumb_status Finish(Job* job, Transfer* transfer, int failure, const MPI_Status* status) {
  plumb_status result = PLUMB_OK;
  if (failure != MPI_SUCCESS) {
    result =
        Failed(job, transfer->receives ? "receiving from" : "sending to", transfer->peer, failure);
  } else if (transfer->receives) {
    MPI_Count received = 0;
    MPI_Get_elements_x(status, MPI_BYTE, &received);
    if (received != (MPI_Count)transfer->size) {
      snprintf(job->error, sizeof(job->error),
               "receives %zu bytes of tag %d, and rank %d sent %lld", transfer->size, transfer->tag,
               transfer->peer, (long long)received);
      result = PLUMB_STATUS_INTERNAL;
    }
  }
  free(transfer);
  return result;
}

static plumb_status Test(void* context, void* transfer, int32_t* over) {
  Transfer* const tested = transfer;
  MPI_Status status;
  int is_over = 0;
  const int failure = MPI_Test(&tested->request, &is_over, &status);
  *over = is_over != 0;
  if (failure == MPI_SUCCESS && !is_over) return PLUMB_OK;
  return Finish(context, tested, failure, &status);
}

static plumb_status Wait(void* context, void* transfer) {
  Transfer* const waited = transfer;
  MPI_Status status;
  const int failure = MPI_Wait(&waited->request, &status);
  return Finish(context, waited, failure, &status);
}

static plumb_status Probe(void* context, int32_t tag, int32_t* found, int32_t* from, size_t* size) {
  Job* const job = context;
  MPI_Status status;
  int is_there = 0;
  const int failure = MPI_Iprobe(MPI_ANY_SOURCE, tag, job->comm, &is_there, &status);
  if (failure != MPI_SUCCESS) return Failed(job, "looking for messages", -1, failure);
  *found = is_there != 0;
  if (!is_there) return PLUMB_OK;
  MPI_Count bytes = 0;
  MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
  *from = status.MPI_SOURCE;
  *size = (size_t)bytes;
  return PLUMB_OK;
}

static plumb_status Barrier(void* context) {
  Job* const job = context;
  const int failure = MPI_Barrier(job->comm);
  return failure == MPI_SUCCESS ? PLUMB_OK : Failed(job, "the barrier", -1, failure);
}

static void Abort(void* context, int32_t code) { MPI_Abort(((Job*)context)->comm, code); }

static const char* Error(void* context) { return ((Job*)context)->error; }

static plumb_status Initialize(int* by_us, char* problem, size_t capacity) {
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  *by_us = !initialized;
  if (initialized) {
    MPI_Query_thread(&level);
  } else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
    snprintf(problem, capacity, "MPI_Init_thread failed");
    return PLUMB_STATUS_UNAVAILABLE;
  }
  if (level < MPI_THREAD_SERIALIZED) {
    snprintf(problem, capacity,
             "MPI cannot be called from several threads in turn, which plumb does");
    return PLUMB_STATUS_UNIMPLEMENTED;
  }
  /* Errors are returned instead of ending the job. If the host initialized MPI, it also handles
   * errors that belong to no communicator, which MPICH has for messages of a rank to itself. */
  if (*by_us) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }
  return PLUMB_OK;
}

plumb_status plumb_mpi_communicator(const void* comm, plumb_communicator* communicator,
                                    char* problem, size_t capacity) {
  Job* const job = calloc(1, sizeof(*job));
  if (job == NULL) {
    snprintf(problem, capacity, "out of memory");
    return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  }
  plumb_status status = Initialize(&job->initialized, problem, capacity);
  const MPI_Comm whole = comm == NULL ? MPI_COMM_WORLD : *(const MPI_Comm*)comm;
  if (status == PLUMB_OK && MPI_Comm_dup(whole, &job->comm) != MPI_SUCCESS) {
    snprintf(problem, capacity, "MPI_Comm_dup failed");
    status = PLUMB_STATUS_UNAVAILABLE;
  }
  if (status != PLUMB_OK) {
    free(job);
    return status;
  }
  MPI_Comm_set_errhandler(job->comm, MPI_ERRORS_RETURN);
  int rank = 0, size = 1, length = 0;
  MPI_Comm_rank(job->comm, &rank);
  MPI_Comm_size(job->comm, &size);
  MPI_Get_processor_name(job->host, &length);

  plumb_communicator filled;
  memset(&filled, 0, sizeof(filled));
  filled.struct_size = communicator->struct_size < sizeof(filled) ? communicator->struct_size
                                                                  : (uint32_t)sizeof(filled);
  filled.context = job;
  filled.rank = rank;
  filled.size = size;
  filled.host = job->host;
  filled.start_send = StartSend;
  filled.start_receive = StartReceive;
  filled.test = Test;
  filled.wait = Wait;
  filled.probe = Probe;
  filled.barrier = Barrier;
  filled.abort = Abort;
  filled.error = Error;
  memcpy(communicator, &filled, filled.struct_size);
  return PLUMB_OK;
}

void plumb_mpi_release(plumb_communicator* communicator) {
  Job* const job = communicator->context;
  if (job == NULL) return;
  communicator->context = NULL;
  MPI_Comm_free(&job->comm);
  if (job->initialized) MPI_Finalize();
  free(job);
}
