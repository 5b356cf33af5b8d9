// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/stall_watch.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

// Time between two reads of control messages, and before the first one of a wait. Most waits are
// shorter, and if all ranks fail together, each should report its own error.
constexpr double kPollSeconds = 0.2, kFirstPollSeconds = 1;

}  // namespace

StallWatch::StallWatch(std::unique_ptr<Communicator> ranks, StallWatchOptions options)
    : ranks_(std::move(ranks)), options_(std::move(options)) {}

absl::StatusOr<Communicator::Transfer> StallWatch::Started(int peer,
                                                           absl::StatusOr<Transfer> transfer) {
  if (transfer.ok()) peers_[transfer->handle] = peer;
  return transfer;
}

absl::StatusOr<Communicator::Transfer> StallWatch::StartSend(int to, int tag, const void* data,
                                                             size_t bytes) {
  return Started(to, ranks_->StartSend(to, tag, data, bytes));
}

absl::StatusOr<Communicator::Transfer> StallWatch::StartReceive(int from, int tag, void* data,
                                                                size_t bytes) {
  return Started(from, ranks_->StartReceive(from, tag, data, bytes));
}

absl::StatusOr<bool> StallWatch::Test(Transfer* transfer) {
  void* const handle = transfer->handle;
  absl::StatusOr<bool> over = ranks_->Test(transfer);
  if (transfer->handle == nullptr) peers_.erase(handle);
  return over;
}

absl::Status StallWatch::Wait(Transfer* transfer) {
  if (transfer->handle == nullptr) return absl::OkStatus();
  const int peer = peers_[transfer->handle];
  const Clock::time_point begin = Clock::now();
  Schedule schedule = {kFirstPollSeconds, options_.grace_seconds / 2,
                       options_.grace_seconds + kFirstPollSeconds, false};
  // Polls without a pause at first, for messages that are about to arrive. Later it sleeps, since
  // the rank that is waited for may need the processor.
  constexpr auto kEager = std::chrono::microseconds(200);
  constexpr auto kMaxPause = std::chrono::microseconds(1000);
  auto pause = std::chrono::microseconds(20);
  for (;;) {
    PLUMB_ASSIGN_OR_RETURN(const bool over, Test(transfer));
    if (over) return absl::OkStatus();
    const Clock::duration waited = Clock::now() - begin;
    if (waited < kEager) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kMaxPause);
    const double seconds = std::chrono::duration<double>(waited).count();
    if (seconds < schedule.look) continue;
    // An error here is also one of the transfer, which the next test returns.
    (void)PollControl(peer, seconds, &schedule);
  }
}

absl::Status StallWatch::PollControl(int peer, double waited, Schedule* schedule) {
  // Reports from before this wait may be outdated.
  if (!schedule->has_looked) waiting_for_.clear();
  FinishSends();
  PLUMB_RETURN_IF_ERROR(ReadControl(/*keep_waits=*/schedule->has_looked));
  schedule->has_looked = true;
  schedule->look = waited + kPollSeconds;
  if (options_.grace_seconds <= 0) return absl::OkStatus();
  if (waited >= schedule->report) {
    schedule->report = waited + options_.grace_seconds / 2;  // so at least one per grace period
    for (const int to : {0, 1}) {
      if (to != rank()) SendControl(to, {kWaiting, peer}, "");
    }
  }
  if (waited >= schedule->note) {
    schedule->note = 2 * waited;
    const int stalled = Stalled(peer);
    if (rank() == (stalled == 0 ? 1 : 0)) options_.on_stall(stalled, waited);
  }
  return absl::OkStatus();
}

int StallWatch::Stalled(int peer) const {
  int stalled = peer;
  for (int i = 0; i < size(); ++i) {
    const auto next = waiting_for_.find(stalled);
    if (next == waiting_for_.end() || next->second == rank()) break;
    stalled = next->second;
  }
  return stalled;
}

absl::Status StallWatch::ReadControl(bool keep_waits) {
  for (;;) {
    PLUMB_ASSIGN_OR_RETURN(const std::optional<Message> found, ranks_->Probe(kTagControl));
    if (!found.has_value()) return absl::OkStatus();
    std::string message(found->bytes, '\0');
    PLUMB_ASSIGN_OR_RETURN(Transfer receive, ranks_->StartReceive(found->from, kTagControl,
                                                                  message.data(), message.size()));
    PLUMB_RETURN_IF_ERROR(ranks_->Wait(&receive));  // does not block: the message has arrived
    Head head = {};
    std::memcpy(&head, message.data(), std::min(message.size(), sizeof(head)));
    if (head.kind == kWaiting && keep_waits) waiting_for_[found->from] = head.value;
    if (head.kind == kFailed) options_.on_failure(head.value, message.substr(sizeof(head)));
  }
}

void StallWatch::SendControl(int to, const Head& head, const std::string& text) {
  Sending& sent = sending_.emplace_back();
  sent.message = std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + text;
  const auto started = ranks_->StartSend(to, kTagControl, sent.message.data(), sent.message.size());
  if (started.ok()) {
    sent.transfer = *started;
  } else {
    sending_.pop_back();
  }
}

void StallWatch::FinishSends() {
  sending_.remove_if([this](Sending& each) {
    const absl::StatusOr<bool> over = ranks_->Test(&each.transfer);
    return !over.ok() || *over;
  });
}

absl::Status StallWatch::ReportFailure(int exit_code, const std::string& text, double seconds) {
  SendControl(0, {kFailed, exit_code}, text);
  const Clock::time_point begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    FinishSends();
    // Makes progress on the sends, and fails if threads are the ranks and the job has ended.
    const absl::Status looked = ranks_->Probe(kTagControl).status();
    if (absl::IsAborted(looked)) return looked;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return absl::OkStatus();
}

void StallWatch::Drain() {
  for (int i = 0; i < 100; ++i) {
    if (!ReadControl(/*keep_waits=*/false).ok()) return;
    FinishSends();
    if (i > 0 && sending_.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

absl::Status StallWatch::Barrier() {
  // Dissemination barrier: after round k every rank has heard, directly or indirectly, from 2^(k+1)
  // ranks.
  for (int distance = 1; distance < size(); distance *= 2) {
    PLUMB_ASSIGN_OR_RETURN(Transfer send,
                           StartSend((rank() + distance) % size(), kTagCollective, nullptr, 0));
    PLUMB_RETURN_IF_ERROR(
        Receive(this, (rank() + size() - distance) % size(), kTagCollective, nullptr, 0));
    PLUMB_RETURN_IF_ERROR(Wait(&send));
  }
  return absl::OkStatus();
}

}  // namespace plumb
