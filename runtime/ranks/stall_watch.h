// SPDX-License-Identifier: Apache-2.0
// A communicator that looks after its own waits: rank 0 learns of another rank's error, and of the
// rank for which all others wait.
#ifndef PLUMB_RUNTIME_RANKS_STALL_WATCH_H_
#define PLUMB_RUNTIME_RANKS_STALL_WATCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

struct StallWatchOptions {
  // Time after which a rank that is waited for is named, and again whenever the wait has doubled.
  // 0: none is ever named.
  double grace_seconds = 60;
  // Called by rank 0, and by rank 1 if it is rank 0 that stalls, with the rank that stalls and how
  // long this rank has waited. A rank that computes for so long looks the same.
  std::function<void(int rank, double seconds)> on_stall;
  // Called by rank 0 with what another rank has told by ReportFailure.
  std::function<void(int exit_code, const std::string& text)> on_failure;
};

// Passes every call on to another communicator, which it owns. It waits by testing again and again,
// at first without a pause and then every millisecond or less, so a rank that waits long costs its
// machine little. A wait of more than a second also reads what other ranks have to tell (messages
// of kTagControl) and calls the functions of the options. Thread class of the communicator.
class StallWatch : public Communicator {
 public:
  StallWatch(std::unique_ptr<Communicator> ranks, StallWatchOptions options);

  // Tells rank 0 that this rank has failed and waits `seconds` for it to end the job. Returns if it
  // has not. Errors: kAborted where threads are ranks and the job has ended. REQUIRES: rank() > 0.
  absl::Status ReportFailure(int exit_code, const std::string& text, double seconds);
  // Receives what other ranks have still told, so that MPI ends with no message under way.
  // REQUIRES: all ranks have met after their last wait.
  void Drain();

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  std::string host() const override { return ranks_->host(); }
  absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) override;
  absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) override;
  absl::StatusOr<bool> Test(Transfer* transfer) override;
  absl::Status Wait(Transfer* transfer) override;
  absl::StatusOr<std::optional<Message>> Probe(int tag) override { return ranks_->Probe(tag); }
  // By messages of kTagCollective, so that its waits are looked after, too.
  absl::Status Barrier() override;
  void Abort(int code) override { ranks_->Abort(code); }

 private:
  using Clock = std::chrono::steady_clock;

  enum Kind : int32_t { kFailed = 1, kWaiting };
  // Beginning of a control message.
  struct Head {
    int32_t kind;
    int32_t value;  // kFailed: the exit code; the text follows. kWaiting: a rank
  };
  struct Sending {
    std::string message;
    Transfer transfer;
  };
  // Times of one wait, in seconds since it began.
  struct Schedule {
    double look, report, note;
    bool has_looked;
  };

  absl::StatusOr<Transfer> Started(int peer, absl::StatusOr<Transfer> transfer);
  void SendControl(int to, const Head& head, const std::string& text);
  void FinishSends();
  // Reads all control messages that have arrived; keeps those on waits if `keep_waits`.
  absl::Status ReadControl(bool keep_waits);
  // Does what is due in a wait for `peer` that has lasted `waited` seconds.
  absl::Status LookAround(int peer, double waited, Schedule* schedule);
  // Returns the rank at the end of the chain of ranks that wait for each other, from `peer` on.
  int Stalled(int peer) const;

  std::list<Sending> sending_;  // outlives ranks_, which reads the messages
  const std::unique_ptr<Communicator> ranks_;
  const StallWatchOptions options_;
  std::map<void*, int> peers_;      // of pending transfers, by handle
  std::map<int, int> waiting_for_;  // what other ranks have told in this wait
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_STALL_WATCH_H_
