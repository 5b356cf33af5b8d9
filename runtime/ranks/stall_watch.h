// A communicator that can be looked at while it waits: for whom, and since when.
#ifndef PLUMB_RUNTIME_RANKS_STALL_WATCH_H_
#define PLUMB_RUNTIME_RANKS_STALL_WATCH_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// Passes every call on to another communicator, which it owns. It waits by testing again and again,
// at first at once and then every millisecond or less, so a rank that waits long costs its machine
// little, and other threads may use the communicator in between: thread-safe, but that a transfer
// belongs to one thread at a time.
class StallWatch : public Communicator {
 public:
  explicit StallWatch(std::unique_ptr<Communicator> ranks);

  struct Waiting {
    int peer;        // whose message, or who is to take ours
    double seconds;  // since when
  };
  // What the thread that called Wait or Barrier last is waiting for; nothing if none is.
  std::optional<Waiting> waiting() const;

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  std::string host() const override { return ranks_->host(); }
  absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) override;
  absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) override;
  absl::StatusOr<bool> Test(Transfer* transfer) override;
  absl::Status Wait(Transfer* transfer) override;
  absl::StatusOr<std::optional<Message>> Probe(int tag) override;
  // By messages of kTagCollective, so that it names whom it waits for.
  absl::Status Barrier() override;
  void Abort(int code) override;

 private:
  using Clock = std::chrono::steady_clock;

  // One end of a transfer; the handle that callers have is this.
  absl::StatusOr<Transfer> Started(int peer, absl::StatusOr<Transfer> transfer);
  absl::StatusOr<bool> TestLocked(Transfer* transfer);

  const std::unique_ptr<Communicator> ranks_;
  mutable std::mutex mutex_;    // of all below, and of calls of ranks_
  std::map<void*, int> peers_;  // of what is pending, by its handle
  int waiting_for_ = -1;
  Clock::time_point waiting_since_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_STALL_WATCH_H_
