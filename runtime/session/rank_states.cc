#include "runtime/session/rank_states.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/tags.h"
#include "runtime/session/gradient_exchange.h"

namespace plumb {

// From rank 0; equal processes on all ranks, so it is sent as it lies.
struct RankStates::Request {
  enum Kind : int64_t { kRead, kWrite, kDone } kind;
  int64_t parameter = 0, is_second = 0, begin = 0, count = 0;  // kRead, kWrite
  int64_t written = 0;                                         // kDone
  Standing standing;
};

RankStates::RankStates(Communicator* ranks, const BucketPlan& plan, const Optimizer* optimizer,
                       const ParameterStore* weights, const ParameterStore* average)
    : ranks_(ranks), plan_(plan), optimizer_(optimizer), weights_(weights), average_(average) {}

absl::Status RankStates::CheckInUse() const {
  if (in_use_) return status_;  // what failed before is nothing to go on with
  return absl::FailedPreconditionError(
      "the states of this recipe's optimizer lie on several ranks: rank 0 reads and writes them "
      "while the others answer (plumb_trainer_share_states)");
}

int RankStates::OwnerOf(size_t parameter) const {
  const auto at =
      std::find_if(plan_.buckets.begin(), plan_.buckets.end(),
                   [parameter](const BucketPlan::Bucket& b) { return parameter < b.end; });
  return at->owner;
}

void RankStates::Send(int to, const Request& request) {
  if (status_.ok()) {
    status_ = RankError(plumb::Send(ranks_, to, kTagStates, &request, sizeof(request)));
  }
}

void RankStates::Read(const Optimizer::StateId& state, int64_t begin, int64_t n, float* to) {
  PLUMB_CHECK(in_use_, "states of other ranks are read in Use");
  const int owner = OwnerOf(state.parameter);
  Send(owner, {Request::kRead,
               static_cast<int64_t>(state.parameter),
               state.is_second ? 1 : 0,
               begin,
               n,
               0,
               {}});
  if (!status_.ok()) {
    std::fill_n(to, n, 0.0f);
    return;
  }
  status_ =
      RankError(Receive(ranks_, owner, kTagStates, to, static_cast<size_t>(n) * sizeof(float)));
}

void RankStates::Write(const Optimizer::StateId& state, int64_t begin, int64_t n,
                       const float* from) {
  PLUMB_CHECK(in_use_, "states of other ranks are written in Use");
  const int owner = OwnerOf(state.parameter);
  Send(owner, {Request::kWrite,
               static_cast<int64_t>(state.parameter),
               state.is_second ? 1 : 0,
               begin,
               n,
               0,
               {}});
  if (!status_.ok()) return;
  status_ = RankError(
      plumb::Send(ranks_, owner, kTagStates, from, static_cast<size_t>(n) * sizeof(float)));
}

absl::Status RankStates::Answer(Standing* standing, bool* written) {
  while (true) {
    Request request = {};
    PLUMB_RETURN_IF_ERROR(Receive(ranks_, 0, kTagStates, &request, sizeof(request)));
    if (request.kind == Request::kDone) {
      *standing = request.standing;
      *written = request.written != 0;
      return absl::OkStatus();
    }
    float* const data =
        optimizer_->DataOf({static_cast<size_t>(request.parameter), request.is_second != 0});
    PLUMB_CHECK(data != nullptr, "rank 0 asks the owner");
    const size_t bytes = static_cast<size_t>(request.count) * sizeof(float);
    PLUMB_RETURN_IF_ERROR(request.kind == Request::kRead
                              ? plumb::Send(ranks_, 0, kTagStates, data + request.begin, bytes)
                              : Receive(ranks_, 0, kTagStates, data + request.begin, bytes));
  }
}

absl::Status RankStates::SendWritten() {
  const auto share = [this](float* data, int64_t n) {
    return RankError(Broadcast(ranks_, 0, data, static_cast<size_t>(n) * sizeof(float)));
  };
  for (const ParameterStore* store : {weights_, average_}) {
    if (store == nullptr) continue;
    PLUMB_RETURN_IF_ERROR(share(store->raw_storage(), store->layout().size));
    PLUMB_RETURN_IF_ERROR(share(store->state_data(), store->states().size));
  }
  for (const Optimizer::StateId& state : optimizer_->states()) {
    // Those that lie on one rank alone it has already.
    if (optimizer_->is_sharded()) break;
    const ParameterLayout::Entry& entry = weights_->layout().entries[state.parameter];
    PLUMB_RETURN_IF_ERROR(share(optimizer_->DataOf(state), entry.end - entry.begin));
  }
  return absl::OkStatus();
}

absl::Status RankStates::Use(absl::FunctionRef<absl::Status()> use, Standing* standing) {
  absl::Status used;
  bool written = false;
  if (ranks_->rank() == 0) {
    in_use_ = true;
    written_ = false;
    status_ = absl::OkStatus();
    {
      const absl::Cleanup done = [this] { in_use_ = false; };
      used = use();
    }
    written = written_;
    const Request done = {Request::kDone, 0, 0, 0, 0, written ? 1 : 0, *standing};
    for (int rank = 1; rank < ranks_->size(); ++rank) Send(rank, done);
    PLUMB_RETURN_IF_ERROR(status_);
  } else {
    PLUMB_RETURN_IF_ERROR(RankError(Answer(standing, &written)));
  }
  if (written) PLUMB_RETURN_IF_ERROR(SendWritten());
  return AllOk(ranks_, used);
}

}  // namespace plumb
