#include "runtime/ranks/stall_watch.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/tags.h"

namespace plumb {

StallWatch::StallWatch(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

std::optional<StallWatch::Waiting> StallWatch::waiting() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_for_ < 0) return std::nullopt;
  const std::chrono::duration<double> since = Clock::now() - waiting_since_;
  return Waiting{waiting_for_, since.count()};
}

absl::StatusOr<Communicator::Transfer> StallWatch::Started(int peer,
                                                           absl::StatusOr<Transfer> transfer) {
  if (transfer.ok()) peers_[transfer->handle] = peer;
  return transfer;
}

absl::StatusOr<Communicator::Transfer> StallWatch::StartSend(int to, int tag, const void* data,
                                                             size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Started(to, ranks_->StartSend(to, tag, data, bytes));
}

absl::StatusOr<Communicator::Transfer> StallWatch::StartReceive(int from, int tag, void* data,
                                                                size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Started(from, ranks_->StartReceive(from, tag, data, bytes));
}

absl::StatusOr<bool> StallWatch::TestLocked(Transfer* transfer) {
  void* const handle = transfer->handle;
  absl::StatusOr<bool> over = ranks_->Test(transfer);
  if (transfer->handle == nullptr) peers_.erase(handle);
  return over;
}

absl::StatusOr<bool> StallWatch::Test(Transfer* transfer) {
  std::lock_guard<std::mutex> lock(mutex_);
  return TestLocked(transfer);
}

absl::Status StallWatch::Wait(Transfer* transfer) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (transfer->handle == nullptr) return absl::OkStatus();
  waiting_for_ = peers_[transfer->handle];
  waiting_since_ = Clock::now();
  // Messages that are nearly there are met without a delay. Later a processor is not kept busy with
  // asking: who is waited for may want it.
  constexpr auto kEager = std::chrono::microseconds(200);
  constexpr auto kLongest = std::chrono::microseconds(1000);
  auto pause = std::chrono::microseconds(20);
  absl::StatusOr<bool> over = false;
  for (;;) {
    over = TestLocked(transfer);
    if (!over.ok() || *over) break;
    const bool eager = Clock::now() - waiting_since_ < kEager;
    lock.unlock();
    if (eager) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongest);
    }
    lock.lock();
  }
  waiting_for_ = -1;
  return over.status();
}

absl::StatusOr<std::optional<Communicator::Message>> StallWatch::Probe(int tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  return ranks_->Probe(tag);
}

absl::Status StallWatch::Barrier() {
  // Dissemination: after round k everyone has heard, in turn, of 2^(k+1) ranks.
  for (int distance = 1; distance < size(); distance *= 2) {
    PLUMB_ASSIGN_OR_RETURN(Transfer send,
                           StartSend((rank() + distance) % size(), kTagCollective, nullptr, 0));
    PLUMB_RETURN_IF_ERROR(
        Receive(this, (rank() + size() - distance) % size(), kTagCollective, nullptr, 0));
    PLUMB_RETURN_IF_ERROR(Wait(&send));
  }
  return absl::OkStatus();
}

void StallWatch::Abort(int code) {
  // In the end without the lock: who holds it may be stuck in a call.
  bool locked = false;
  for (int i = 0; i < 100 && !(locked = mutex_.try_lock()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ranks_->Abort(code);
  if (locked) mutex_.unlock();
}

}  // namespace plumb
