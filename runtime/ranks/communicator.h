// SPDX-License-Identifier: Apache-2.0
// The messages between the processes (ranks) of one job, on one machine or on several. Everything
// that is beyond one process is written against this interface; who carries the messages is behind
// it: MPI (host_communicator.h), threads of one process (local_ranks.h), nobody (SingleRank).
#ifndef PLUMB_RUNTIME_RANKS_COMMUNICATOR_H_
#define PLUMB_RUNTIME_RANKS_COMMUNICATOR_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb {

// Number of ranks above which a job is refused: a size that is not meant, over which loops would
// not end.
inline constexpr int kMaxRanks = 1 << 20;

// One rank of a job. Messages of one tag between two ranks arrive in the order in which their sends
// were started. Not thread-safe: one thread at a time. Errors: kAborted after an Abort() by any
// rank, kUnavailable where a rank or the network is gone, kInternal for a receive of another size.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // 0 ... size() - 1
  virtual int size() const = 0;
  virtual std::string host() const = 0;  // name of this rank's machine, for messages

  // A send or a receive that is pending. The communicator owns it; null: there is none, or it is
  // over.
  struct Transfer {
    void* handle = nullptr;
  };

  // Start to send or to receive and return at once. `data` stays as it is until Wait returned or
  // Test said true, which every transfer needs: a send may be over only when its receive has
  // started. The size of a receive is that of its message.
  virtual absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) = 0;
  virtual absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) = 0;

  // Whether the transfer is over; also carries the others on. Returns at once.
  virtual absl::StatusOr<bool> Test(Transfer* transfer) = 0;
  // Returns when the transfer is over.
  virtual absl::Status Wait(Transfer* transfer) = 0;

  struct Message {
    int from;
    size_t bytes;
  };
  // The next message of this tag, from anyone, if one has arrived that no receive was started for.
  virtual absl::StatusOr<std::optional<Message>> Probe(int tag) = 0;

  // Returns when all ranks have called it.
  virtual absl::Status Barrier() = 0;

  // Ends the job: all ranks exit with `code` as soon as possible. May return: where threads are
  // ranks, their pending and later calls fail with kAborted.
  virtual void Abort(int code) = 0;
};

// Returns rank 0 of 1, so that code for many ranks runs on one. It may send to itself. Abort()
// returns, and later calls fail with kAborted.
std::unique_ptr<Communicator> SingleRank();

// Returns the name of this machine, as its kernel has it.
std::string OwnHostName();

// Tags of all of plumb's messages: messages of different tags do not overtake each other's
// receives.
enum RankTag : int {
  kTagControl = 1,  // errors, and waits of ranks (stall_watch.h)
  kTagFacts,        // what ranks say of themselves
  kTagGradients,
  kTagWeights,
  kTagStates,
  kTagCheckpoint,  // the hash of a file, from one of its writers to the next
  kTagStudy,       // runs that are handed out, and what came of them
  kTagLinks,       // measurements of latency and bandwidth
  kTagCollective,  // collectives.h
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_COMMUNICATOR_H_
