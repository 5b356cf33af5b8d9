// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/rank_states.h"

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/gradient_exchange.h"

namespace plumb {

// A request of rank 0. All ranks run the same build, so the struct is sent as bytes.
struct RankStates::Request {
  enum Kind : int64_t { kRead, kWrite, kDone } kind;
  enum What : int64_t {
    kFirstMoment,
    kSecondMoment,
    kLowPlane
  } what = kFirstMoment;  // kRead, kWrite
  int64_t parameter = 0, begin = 0, count = 0;
  int64_t written = 0;  // kDone
  Standing standing;

  static Request Of(Kind kind, What what, size_t parameter, int64_t begin, int64_t count) {
    return {kind, what, static_cast<int64_t>(parameter), begin, count, 0, {}};
  }
  size_t bytes() const {
    return static_cast<size_t>(count) * (what == kLowPlane ? sizeof(uint16_t) : sizeof(float));
  }
};

RankStates::RankStates(Communicator* ranks, const BucketPlan& plan, const Optimizer* optimizer,
                       ParameterStore* weights, const ParameterStore* average)
    : ranks_(ranks), plan_(plan), optimizer_(optimizer), weights_(weights), average_(average) {
  if (!weights_->is_whole()) weights_->SetRemote(this);
}

RankStates::~RankStates() {
  if (!weights_->is_whole()) weights_->SetRemote(nullptr);
}

absl::Status RankStates::CheckInUse() const {
  if (in_use_) return status_;  // an earlier communication error is final
  return absl::FailedPreconditionError(
      "the optimizer states, and in bf16 the f32 weights, are stored on several ranks "
      "(train.shard); read and write them on rank 0 in plumb_trainer_share_states, which all ranks "
      "call");
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

void RankStates::ReadRemote(const Request& request, void* to) {
  PLUMB_CHECK(in_use_, "states of other ranks are read in Use");
  const int owner = OwnerOf(static_cast<size_t>(request.parameter));
  Send(owner, request);
  if (status_.ok()) status_ = RankError(Receive(ranks_, owner, kTagStates, to, request.bytes()));
  if (!status_.ok()) std::memset(to, 0, request.bytes());
}

void RankStates::WriteRemote(const Request& request, const void* from) {
  PLUMB_CHECK(in_use_, "states of other ranks are written in Use");
  const int owner = OwnerOf(static_cast<size_t>(request.parameter));
  Send(owner, request);
  if (!status_.ok()) return;
  status_ = RankError(plumb::Send(ranks_, owner, kTagStates, from, request.bytes()));
}

void RankStates::Read(const Optimizer::StateId& state, int64_t begin, int64_t n, float* to) {
  ReadRemote(
      Request::Of(Request::kRead, state.is_second ? Request::kSecondMoment : Request::kFirstMoment,
                  state.parameter, begin, n),
      to);
}

void RankStates::Write(const Optimizer::StateId& state, int64_t begin, int64_t n,
                       const float* from) {
  WriteRemote(
      Request::Of(Request::kWrite, state.is_second ? Request::kSecondMoment : Request::kFirstMoment,
                  state.parameter, begin, n),
      from);
}

void RankStates::ReadLow(size_t entry, int64_t begin, int64_t n, uint16_t* to) {
  ReadRemote(Request::Of(Request::kRead, Request::kLowPlane, entry, begin, n), to);
}

void RankStates::WriteLow(size_t entry, int64_t begin, int64_t n, const uint16_t* from) {
  // The owner gets the high plane with all others', in SendWritten.
  WriteRemote(Request::Of(Request::kWrite, Request::kLowPlane, entry, begin, n), from);
}

absl::Span<std::byte> RankStates::DataOf(const Request& request) const {
  const auto parameter = static_cast<size_t>(request.parameter);
  std::byte* data;
  if (request.what == Request::kLowPlane) {
    PLUMB_CHECK(weights_->is_here(parameter), "rank 0 asks the owner");
    data = reinterpret_cast<std::byte*>(weights_->split(parameter).low + request.begin);
  } else {
    float* const all = optimizer_->DataOf({parameter, request.what == Request::kSecondMoment});
    PLUMB_CHECK(all != nullptr, "rank 0 asks the owner");
    data = reinterpret_cast<std::byte*>(all + request.begin);
  }
  return {data, request.bytes()};
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
    const absl::Span<std::byte> data = DataOf(request);
    PLUMB_RETURN_IF_ERROR(request.kind == Request::kRead
                              ? plumb::Send(ranks_, 0, kTagStates, data.data(), data.size())
                              : Receive(ranks_, 0, kTagStates, data.data(), data.size()));
  }
}

absl::Status RankStates::SendWritten() {
  const auto share = [this](float* data, int64_t n) {
    return RankError(Broadcast(ranks_, 0, data, static_cast<size_t>(n) * sizeof(float)));
  };
  for (const ParameterStore* store : {static_cast<const ParameterStore*>(weights_), average_}) {
    if (store == nullptr) continue;
    // Low planes that only their owner has were written there already.
    for (const absl::Span<std::byte> part : store->Storage(0, store->layout().entries.size())) {
      PLUMB_RETURN_IF_ERROR(RankError(Broadcast(ranks_, 0, part.data(), part.size())));
    }
    PLUMB_RETURN_IF_ERROR(share(store->state_data(), store->states().size));
  }
  for (const Optimizer::StateId& state : optimizer_->states()) {
    // Sharded states were written to their owner already.
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
    const Request done = {Request::kDone, {}, 0, 0, 0, written ? 1 : 0, *standing};
    for (int rank = 1; rank < ranks_->size(); ++rank) Send(rank, done);
    PLUMB_RETURN_IF_ERROR(status_);
  } else {
    PLUMB_RETURN_IF_ERROR(RankError(Answer(standing, &written)));
  }
  if (written) PLUMB_RETURN_IF_ERROR(SendWritten());
  return AllOk(ranks_, used);
}

}  // namespace plumb
