// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/local_ranks.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

// A send or a receive. The job lists it until it is matched with its counterpart.
struct LocalTransfer {
  bool is_send;
  int from;
  int to;
  int tag;
  void* data;  // const for a send
  size_t bytes;
  bool over = false;
  absl::Status status = absl::OkStatus();

  int owner() const { return is_send ? from : to; }
  int peer() const { return is_send ? to : from; }
};

// State that the ranks share. Everything is guarded by `mutex`.
struct LocalJob {
  explicit LocalJob(int ranks) : size(ranks), returned(ranks, false) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<LocalTransfer*> unmatched;  // in the order in which they were started
  std::vector<bool> returned;
  bool aborted = false;
  int abort_code = 0;
  int at_barrier = 0;
  int64_t barriers = 0;

  absl::Status Aborted() const {
    return absl::AbortedError(absl::StrCat("the job was ended with code ", abort_code));
  }
};

class LocalRank : public Communicator {
 public:
  LocalRank(std::shared_ptr<LocalJob> job, int rank) : job_(std::move(job)), rank_(rank) {}
  ~LocalRank() override {
    std::lock_guard<std::mutex> lock(job_->mutex);
    job_->returned[rank_] = true;
    job_->unmatched.remove_if([this](LocalTransfer* each) { return each->owner() == rank_; });
    for (LocalTransfer* each : started_) delete each;
    job_->changed.notify_all();
  }

  int rank() const override { return rank_; }
  int size() const override { return job_->size; }
  std::string host() const override {
    return job_->size == 1 ? OwnHostName() : absl::StrCat("host", rank_);
  }

  absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) override {
    return Start({/*is_send=*/true, rank_, to, tag, const_cast<void*>(data), bytes});
  }
  absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) override {
    return Start({/*is_send=*/false, from, rank_, tag, data, bytes});
  }

  absl::StatusOr<bool> Test(Transfer* transfer) override {
    std::lock_guard<std::mutex> lock(job_->mutex);
    LocalTransfer* const local = static_cast<LocalTransfer*>(transfer->handle);
    if (local == nullptr) return true;
    if (!local->over && !job_->aborted && !job_->returned[local->peer()]) return false;
    const absl::Status status = Finish(transfer);
    if (!status.ok()) return status;
    return true;
  }

  absl::Status Wait(Transfer* transfer) override {
    std::unique_lock<std::mutex> lock(job_->mutex);
    LocalTransfer* const local = static_cast<LocalTransfer*>(transfer->handle);
    if (local == nullptr) return absl::OkStatus();
    job_->changed.wait(lock, [&] {
      return local->over || job_->aborted || job_->returned[local->peer()] ||
             local->peer() == rank_;
    });
    return Finish(transfer);
  }

  absl::StatusOr<std::optional<Message>> Probe(int tag) override {
    std::lock_guard<std::mutex> lock(job_->mutex);
    if (job_->aborted) return job_->Aborted();
    for (const LocalTransfer* each : job_->unmatched) {
      if (each->is_send && each->to == rank_ && each->tag == tag) {
        return Message{each->from, each->bytes};
      }
    }
    return std::nullopt;
  }

  absl::Status Barrier() override {
    std::unique_lock<std::mutex> lock(job_->mutex);
    if (job_->aborted) return job_->Aborted();
    const int64_t now = job_->barriers;
    if (++job_->at_barrier == job_->size) {
      job_->at_barrier = 0;
      ++job_->barriers;
      job_->changed.notify_all();
      return absl::OkStatus();
    }
    int gone = -1;
    job_->changed.wait(lock, [&] {
      for (int each = 0; each < job_->size; ++each) {
        if (job_->returned[each]) gone = each;
      }
      return job_->barriers != now || job_->aborted || gone >= 0;
    });
    if (job_->barriers != now) return absl::OkStatus();
    if (job_->aborted) return job_->Aborted();
    return Returned(gone);
  }

  void Abort(int code) override {
    std::lock_guard<std::mutex> lock(job_->mutex);
    if (!job_->aborted) job_->abort_code = code;
    job_->aborted = true;
    job_->changed.notify_all();
  }

 private:
  static absl::Status Returned(int rank) {
    return absl::UnavailableError(absl::StrCat("rank ", rank, " has left the job"));
  }

  absl::StatusOr<Transfer> Start(LocalTransfer start) {
    std::lock_guard<std::mutex> lock(job_->mutex);
    if (job_->aborted) return job_->Aborted();
    PLUMB_CHECK(start.peer() >= 0 && start.peer() < job_->size, "a rank of this job");
    LocalTransfer* const mine = new LocalTransfer(std::move(start));
    started_.insert(mine);
    for (auto at = job_->unmatched.begin(); at != job_->unmatched.end(); ++at) {
      LocalTransfer* const other = *at;
      if (other->is_send == mine->is_send || other->from != mine->from || other->to != mine->to ||
          other->tag != mine->tag) {
        continue;
      }
      job_->unmatched.erase(at);
      Carry(mine->is_send ? *mine : *other, mine->is_send ? *other : *mine);
      job_->changed.notify_all();
      return Transfer{mine};
    }
    job_->unmatched.push_back(mine);
    job_->changed.notify_all();
    return Transfer{mine};
  }

  static void Carry(LocalTransfer& send, LocalTransfer& receive) {
    send.over = receive.over = true;
    if (send.bytes == receive.bytes) {
      if (send.bytes > 0) std::memcpy(receive.data, send.data, send.bytes);
      return;
    }
    receive.status = absl::InternalError(
        absl::StrCat("rank ", receive.to, " receives ", receive.bytes, " bytes of tag ",
                     receive.tag, " and rank ", send.from, " sent ", send.bytes));
  }

  // Ends a transfer that has completed or never will.
  absl::Status Finish(Transfer* transfer) {
    LocalTransfer* const local = static_cast<LocalTransfer*>(transfer->handle);
    transfer->handle = nullptr;
    absl::Status status = local->status;
    if (!local->over) {
      job_->unmatched.remove(local);
      status = job_->aborted ? job_->Aborted()
               : local->peer() == rank_
                   ? absl::InternalError(absl::StrCat("rank ", rank_, " waits for itself"))
                   : Returned(local->peer());
    }
    started_.erase(local);
    delete local;
    return status;
  }

  const std::shared_ptr<LocalJob> job_;
  const int rank_;
  std::set<LocalTransfer*> started_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> LocalRanks(int size) {
  const auto job = std::make_shared<LocalJob>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<LocalRank>(job, rank));
  return ranks;
}

std::vector<absl::Status> RunRanks(int size,
                                   const std::function<absl::Status(Communicator*)>& run) {
  std::vector<std::unique_ptr<Communicator>> ranks = LocalRanks(size);
  std::vector<absl::Status> results(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = run(ranks[rank].get());
      if (!results[rank].ok()) ranks[rank]->Abort(1);
      ranks[rank].reset();
    });
  }
  for (std::thread& each : threads) each.join();
  return results;
}

std::unique_ptr<Communicator> SingleRank() { return std::move(LocalRanks(1).front()); }

std::string OwnHostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace plumb
