// SPDX-License-Identifier: Apache-2.0
// StallWatch: a communicator that monitors its own waits. Rank 0 learns of other ranks' errors and
// of the rank that all others wait for.
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
  // Time in seconds after which a rank that is waited for is reported, and again whenever the wait
  // has doubled. 0 disables the reports.
  double grace_seconds = 60;
  // Called on rank 0, or on rank 1 if rank 0 stalls, with the stalled rank and the seconds that
  // this rank has waited. A rank that computes for that long looks stalled, too.
  std::function<void(int rank, double seconds)> on_stall;
  // Called on rank 0 with the arguments of another rank's ReportFailure.
  std::function<void(int exit_code, const std::string& text)> on_failure;
};

// Forwards all calls to another communicator, which it owns. It waits by polling, at first without
// a pause and then every millisecond or less, so that a long wait costs the machine little. A wait
// of more than a second also reads the control messages of other ranks (kTagControl) and calls the
// functions of the options. Thread class of the communicator.
class StallWatch : public Communicator {
 public:
  StallWatch(std::unique_ptr<Communicator> ranks, StallWatchOptions options);

  // Informs rank 0 that this rank has failed, and waits up to `seconds` for it to end the job.
  // Returns OK if it has not. Requires: rank() > 0. Errors: kAborted if threads are the ranks and
  // the job has ended.
  absl::Status ReportFailure(int exit_code, const std::string& text, double seconds);
  // Receives the remaining control messages, so that MPI is finalized without pending messages.
  // Requires: all ranks have passed a barrier after their last wait.
  void Drain();

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  std::string host() const override { return ranks_->host(); }
  absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) override;
  absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) override;
  absl::StatusOr<bool> Test(Transfer* transfer) override;
  absl::Status Wait(Transfer* transfer) override;
  absl::StatusOr<std::optional<Message>> Probe(int tag) override { return ranks_->Probe(tag); }
  // Uses messages of kTagCollective, so that its waits are monitored, too.
  absl::Status Barrier() override;
  void Abort(int code) override { ranks_->Abort(code); }

 private:
  using Clock = std::chrono::steady_clock;

  enum Kind : int32_t { kFailed = 1, kWaiting };
  // Header of a control message.
  struct Head {
    int32_t kind;
    int32_t value;  // kFailed: the exit code, followed by the text. kWaiting: the awaited rank
  };
  struct Sending {
    std::string message;
    Transfer transfer;
  };
  // Due times within one wait, in seconds since it began.
  struct Schedule {
    double look, report, note;
    bool has_looked;
  };

  absl::StatusOr<Transfer> Started(int peer, absl::StatusOr<Transfer> transfer);
  void SendControl(int to, const Head& head, const std::string& text);
  void FinishSends();
  // Reads all control messages that have arrived; keeps reports of waits if `keep_waits`.
  absl::Status ReadControl(bool keep_waits);
  // Does the work that is due in a wait for `peer` that has lasted `waited` seconds.
  absl::Status PollControl(int peer, double waited, Schedule* schedule);
  // Returns the last rank of the chain of ranks that wait for each other, starting with `peer`.
  int Stalled(int peer) const;

  std::list<Sending> sending_;  // declared before ranks_, which reads the messages, to outlive it
  const std::unique_ptr<Communicator> ranks_;
  const StallWatchOptions options_;
  std::map<void*, int> peers_;      // peer of each pending transfer, by handle
  std::map<int, int> waiting_for_;  // reports of other ranks during this wait: waiting to awaited
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_STALL_WATCH_H_
