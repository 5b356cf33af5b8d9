// SPDX-License-Identifier: Apache-2.0
// Communicator: messages between the processes (ranks) of one job, on one machine or on several.
// All distributed code uses this interface. It is implemented by MPI (host_communicator.h), by
// threads of one process (local_ranks.h), and for a single process (SingleRank).
#ifndef PLUMB_RUNTIME_RANKS_COMMUNICATOR_H_
#define PLUMB_RUNTIME_RANKS_COMMUNICATOR_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb {

// Maximum number of ranks of a job. A larger number is surely an error, and loops over it would
// hardly end.
inline constexpr int kMaxRanks = 1 << 20;

// One rank of a job. Messages of one tag between two ranks arrive in the order in which their sends
// were started. Thread-compatible: only one thread at a time may call it. Errors: kAborted after an
// Abort() by any rank, kUnavailable if a rank or the network failed, kInternal if a receive has
// another size than its message.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // 0 ... size() - 1
  virtual int size() const = 0;
  virtual std::string host() const = 0;  // name of this rank's machine, for messages

  // A pending send or receive, owned by the communicator. A null handle is no transfer, or one
  // that has completed.
  struct Transfer {
    void* handle = nullptr;
  };

  // Starts to send or to receive, and returns immediately. `data` must stay valid, and unchanged by
  // the caller, until Wait has returned or Test has returned true, which every transfer needs: a
  // send may complete only after its receive was started. `bytes` is equal on both sides.
  virtual absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) = 0;
  virtual absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) = 0;

  // Returns true if the transfer has completed, and makes progress on the others. Does not wait.
  virtual absl::StatusOr<bool> Test(Transfer* transfer) = 0;
  // Returns when the transfer has completed.
  virtual absl::Status Wait(Transfer* transfer) = 0;

  struct Message {
    int from;
    size_t bytes;
  };
  // Returns the next message of this tag from any rank that has arrived and has no receive yet;
  // nullopt if there is none.
  virtual absl::StatusOr<std::optional<Message>> Probe(int tag) = 0;

  // Returns when all ranks have called it. Collective.
  virtual absl::Status Barrier() = 0;

  // Ends the job: all ranks exit with `code` as soon as possible. May return: if threads are the
  // ranks, their pending and later calls fail with kAborted.
  virtual void Abort(int code) = 0;
};

// Returns rank 0 of a job of size 1, so that code for many ranks runs on one. It may send to
// itself. Abort() returns, and later calls fail with kAborted.
std::unique_ptr<Communicator> SingleRank();

// Returns the name of this machine according to its kernel.
std::string OwnHostName();

// Tags of all of plumb's messages. A receive matches only messages of its tag.
enum RankTag : int {
  kTagControl = 1,  // errors, and reports of long waits (stall_watch.h)
  kTagFacts,        // properties of a rank
  kTagGradients,
  kTagWeights,
  kTagStates,
  kTagCheckpoint,  // the hash of a file, passed from one of its writers to the next
  kTagStudy,       // assignments of a study's runs, and their results
  kTagCollective,  // collectives.h
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_COMMUNICATOR_H_
