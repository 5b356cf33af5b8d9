#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/processors.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/tags.h"
#include "runtime/tools/launch_impl.h"

namespace plumb {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr auto kLook = std::chrono::milliseconds(20);
// How long others have to say that they fail, too, and why, before a rank's error ends the job.
constexpr Seconds kSettle(1);
// The same where the error may be another rank's, seen from its neighbour: a message that broke
// off.
constexpr Seconds kSettleIfItFollows(3);
// For MPI to end this process: where it cannot reach the others it may wait for them.
constexpr Seconds kAbortWithin(5);

bool MayFollow(const absl::Status& status) { return absl::IsUnavailable(status); }

double SecondsSince(std::chrono::steady_clock::time_point then) {
  return Seconds(std::chrono::steady_clock::now() - then).count();
}

template <class Duration>
std::chrono::steady_clock::duration Ticks(Duration duration) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration);
}

std::string SecondsText(double seconds) {
  return absl::StrCat(static_cast<int64_t>(seconds + 0.5), " s");
}

}  // namespace

Launch::Impl::Impl(std::unique_ptr<Communicator> ranks, const LaunchOptions& options,
                   bool is_process)
    : ranks_(std::move(ranks)),
      options_(options),
      is_process_(is_process),
      for_host_(&ranks_),
      beat_(Ticks(Seconds(options.grace_seconds > 0
                              ? std::min(10.0, std::max(0.05, options.grace_seconds / 6))
                              : 10.0))) {}

Launch::Impl::~Impl() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
  if (ranks_.size() > 1 && !in_end_) AbortAll(1);
}

absl::Status Launch::Impl::Begin() {
  hosts_ = {ranks_.host()};
  if (ranks_.size() == 1) return absl::OkStatus();
  const int available = AvailableProcessors();
  PLUMB_ASSIGN_OR_RETURN(hosts_, AllGather(&ranks_, ranks_.host()));
  const ProcessorCounts counts = CountProcessors();
  const auto here = std::count(hosts_.begin(), hosts_.end(), hosts_[ranks_.rank()]);
  if (here > 1 && counts.affinity == counts.machine) {
    default_threads_ = std::max(1, available / static_cast<int>(here));
  }
  last_beat_ = Clock::now();
  peers_.assign(ranks_.size(), Peer{last_beat_, std::nullopt});
  thread_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

std::string Launch::Impl::Named(int rank) const {
  return absl::StrCat("rank ", rank, " on host ", hosts_[rank]);
}

// --- The thread ---

void Launch::Impl::Watch() {
  Clock::time_point last = last_beat_;  // the process may be stopped before this thread begins
  for (;;) {
    const Clock::time_point now = Clock::now();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stop_) return;
      // This process, or its machine, was stopped: what the others said since then is yet to be
      // read.
      if (now - last > beat_ + std::chrono::seconds(1)) {
        for (Peer& peer : peers_) peer.heard += now - last;
      }
    }
    last = now;
    const absl::Status read = ReadMessages();
    if (absl::IsAborted(read)) {  // only where ranks are threads
      std::lock_guard<std::mutex> lock(mutex_);
      if (!verdict_.has_value()) verdict_ = -1;
      changed_.notify_all();
      return;
    }
    FinishSends();
    if (now - last_beat_ >= beat_) {
      last_beat_ = now;
      SendAlive();
      NoteWaits();
    }
    // Not in a look in the middle of which this process was stopped: the next one sees that.
    if (Clock::now() - now < beat_) LookForTheDead();
    EndAfterFailure();
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status Launch::Impl::ReadMessages() {
  for (;;) {
    PLUMB_ASSIGN_OR_RETURN(const std::optional<Communicator::Message> found,
                           ranks_.Probe(kTagControl));
    if (!found.has_value()) return absl::OkStatus();
    std::string message(found->bytes, '\0');
    PLUMB_ASSIGN_OR_RETURN(
        Communicator::Transfer receive,
        ranks_.StartReceive(found->from, kTagControl, message.data(), message.size()));
    for (bool over = false; !over;) {
      PLUMB_ASSIGN_OR_RETURN(over, ranks_.Test(&receive));
      if (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    Heard(found->from, message);
  }
}

void Launch::Impl::Heard(int from, const std::string& message) {
  Head head;
  if (message.size() < sizeof(head)) return;  // of another plumb
  std::memcpy(&head, message.data(), sizeof(head));
  std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[from];
  peer.heard = Clock::now();
  switch (head.kind) {
    case kAlive:
      peer.waiting_for = head.waiting_for;
      peer.waited = head.waited;
      break;
    case kLeft:
      peer.left = head.code;
      break;
    case kError:
      failures_.push_back(
          {from, head.code, head.follows != 0, message.substr(sizeof(head)), Clock::now()});
      break;
    case kVerdict:
      verdict_ = head.code;
      break;
  }
  changed_.notify_all();
}

void Launch::Impl::Send(int to, const Head& head, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  sending_.push_back(
      {to, std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + text, {}});
  Sending& sent = sending_.back();
  const auto started = ranks_.StartSend(to, kTagControl, sent.message.data(), sent.message.size());
  if (started.ok()) {
    sent.transfer = *started;
  } else {
    sending_.pop_back();  // the grace time will tell
  }
}

void Launch::Impl::FinishSends() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto each = sending_.begin(); each != sending_.end();) {
    const absl::StatusOr<bool> over = ranks_.Test(&each->transfer);
    each = !over.ok() || *over ? sending_.erase(each) : std::next(each);
  }
}

void Launch::Impl::SendAlive() {
  const std::optional<StallWatch::Waiting> waiting = ranks_.waiting();
  Head head = {kAlive, 0, 0, -1, 0};
  if (waiting.has_value()) {
    head.waiting_for = waiting->peer;
    head.waited = waiting->seconds;
  }
  std::vector<bool> unread(ranks_.size(), false);  // who has not taken the last one yet
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Sending& each : sending_) unread[each.to] = true;
    peers_[ranks_.rank()].waiting_for = head.waiting_for;
    peers_[ranks_.rank()].waited = head.waited;
  }
  const int last = ranks_.rank() == 0 ? ranks_.size() - 1 : 0;
  for (int to = ranks_.rank() == 0 ? 1 : 0; to <= last; ++to) {
    if (!unread[to]) Send(to, head, "");
  }
}

void Launch::Impl::LookForTheDead() {
  if (options_.grace_seconds <= 0) return;
  const bool first = ranks_.rank() == 0;
  int dead = -1;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (verdict_.has_value()) return;
    for (int rank = first ? 1 : 0; rank < (first ? ranks_.size() : 1) && dead < 0; ++rank) {
      // Where rank 0 is dead one of the others is to say so, and end the rest.
      const double grace = options_.grace_seconds + (first ? 0 : ranks_.rank());
      if (SecondsSince(peers_[rank].heard) > grace) dead = rank;
    }
  }
  if (dead < 0) return;
  if (is_process_) EndLauncherLater();
  EndAll(absl::StrCat(Named(dead), " has not answered for ", SecondsText(options_.grace_seconds),
                      ": it has died or hangs, or the network is cut",
                      first ? "" : absl::StrCat(" (says ", Named(ranks_.rank()), ")")),
         1);
}

void Launch::Impl::NoteWaits() {
  if (ranks_.rank() != 0 || options_.grace_seconds <= 0 || options_.print_note == nullptr) return;
  std::vector<std::string> notes;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int waited_for = 0; waited_for < ranks_.size(); ++waited_for) {
      Peer& peer = peers_[waited_for];
      if (peer.waiting_for >= 0 || peer.left.has_value()) continue;  // it waits itself
      std::vector<int> waiting;
      double longest = 0;
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        if (peers_[rank].waiting_for != waited_for) continue;
        longest = std::max(longest, peers_[rank].waited);
        if (peers_[rank].waited > options_.grace_seconds) waiting.push_back(rank);
      }
      if (waiting.empty()) peer.noted = 0;
      if (waiting.empty() || longest < 2 * peer.noted) continue;
      peer.noted = longest;
      notes.push_back(
          absl::StrCat(waiting.size() == 1 ? "rank " : "ranks ", absl::StrJoin(waiting, ", "),
                       waiting.size() == 1 ? " has" : " have", " waited ", SecondsText(longest),
                       " for ", Named(waited_for), ", which is alive and at work"));
    }
  }
  for (const std::string& note : notes) options_.print_note(note);
}

const Launch::Impl::Failure* Launch::Impl::FirstFailure() const {
  for (const Failure& each : failures_) {
    if (!each.follows) return &each;
  }
  return failures_.empty() ? nullptr : &failures_.front();
}

void Launch::Impl::EndAfterFailure() {
  Failure failure;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Failure* const first = FirstFailure();
    if (first == nullptr || ended_) return;
    const Seconds settle = first->follows ? kSettleIfItFollows : kSettle;
    if (SecondsSince(failures_.front().since) < settle.count()) return;
    failure = *first;
  }
  // What all ranks were told names its rank already.
  const bool names =
      absl::StartsWith(failure.text, "rank ") && absl::StrContains(failure.text, " on host ");
  EndAll(failure.text.empty() || names ? failure.text
                                       : absl::StrCat(Named(failure.rank), ": ", failure.text),
         failure.code);
}

// --- The end ---

void Launch::Impl::EndAll(const std::string& text, int code) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return;
    ended_ = true;
  }
  if (!text.empty() && options_.print_error != nullptr) options_.print_error(text);
  AbortAll(code);
  std::lock_guard<std::mutex> lock(mutex_);
  verdict_ = code;
  changed_.notify_all();
}

void Launch::Impl::AbortAll(int code) {
  if (is_process_) {
    std::thread([code] {
      std::this_thread::sleep_for(kAbortWithin);
      _exit(code);
    }).detach();
  }
  ranks_.Abort(code);
}

int Launch::Impl::End(const absl::Status& status, int exit_code) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    in_end_ = true;
  }
  if (ranks_.size() == 1) {
    if (!status.message().empty() && options_.print_error != nullptr) {
      options_.print_error(std::string(status.message()));
    }
    return exit_code;
  }
  return status.ok() ? LeaveInOrder(exit_code) : LeaveWithError(status, exit_code);
}

int Launch::Impl::LeaveInOrder(int exit_code) {
  const bool first = ranks_.rank() == 0;
  int code = 0;
  if (!first) Send(0, {kLeft, exit_code, 0, -1, 0}, "");
  {
    std::unique_lock<std::mutex> lock(mutex_);
    peers_[ranks_.rank()].left = exit_code;
    changed_.wait(lock, [&] {
      return verdict_.has_value() ||
             (first && failures_.empty() &&
              std::all_of(peers_.begin(), peers_.end(),
                          [](const Peer& peer) { return peer.left.has_value(); }));
    });
    if (!verdict_.has_value()) {  // rank 0 has it now
      ended_ = true;
      verdict_ = 0;
      for (const Peer& peer : peers_) {
        if (*verdict_ == 0) verdict_ = peer.left;
      }
    } else if (ended_ || *verdict_ < 0) {  // aborted
      return *verdict_ < 0 ? exit_code : *verdict_;
    }
    code = *verdict_;
    stop_ = true;
  }
  for (int rank = 1; first && rank < ranks_.size(); ++rank)
    Send(rank, {kVerdict, code, 0, -1, 0}, "");
  thread_.join();
  // Whatever is under way arrives, so that MPI ends with nothing left.
  if (const absl::Status together = ranks_.Barrier(); !together.ok()) return code;
  (void)ReadMessages();
  for (int i = 0; i < 100 && !sending_.empty(); ++i) {
    FinishSends();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return code;
}

int Launch::Impl::LeaveWithError(const absl::Status& status, int exit_code) {
  const bool follows = MayFollow(status);
  const std::string text(status.message());
  if (ranks_.rank() == 0) {
    Failure failure = {0, exit_code, follows, text, Clock::now()};
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (follows) {
        changed_.wait_for(lock, kSettleIfItFollows, [&] {
          const Failure* const other = FirstFailure();
          return verdict_.has_value() || ended_ || (other != nullptr && !other->follows) ||
                 failures_.size() + 1 >= peers_.size();
        });
        const Failure* const other = FirstFailure();
        if (other != nullptr && !other->follows) failure = *other;
      }
    }
    EndAll(failure.rank == 0 ? failure.text : absl::StrCat(Named(failure.rank), ": ", failure.text),
           failure.code);
  } else {
    Send(0, {kError, exit_code, follows ? 1 : 0, -1, 0}, text);
  }
  // Rank 0 prints and ends everyone; if it does not, it is no more.
  std::unique_lock<std::mutex> lock(mutex_);
  const Seconds patience(std::max(options_.grace_seconds, 10.0) + ranks_.rank());
  const bool heard = changed_.wait_for(lock, patience, [&] { return verdict_.has_value(); });
  if (heard) return *verdict_ < 0 ? exit_code : *verdict_;
  lock.unlock();
  EndAll(absl::StrCat(Named(ranks_.rank()), ": ", text), exit_code);
  return exit_code;
}

}  // namespace plumb
