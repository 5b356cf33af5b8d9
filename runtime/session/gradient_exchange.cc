// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/kernels/simd/optimizer.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

int64_t RemoteNodes(int64_t units, int rank, int ranks) {
  size_t nodes = 0;
  for (int other = 0; other < ranks; ++other) {
    if (other != rank) nodes += MaximalNodes(units, UnitsOfRank(units, other, ranks)).size();
  }
  return static_cast<int64_t>(nodes);
}

}  // namespace

absl::Status RankError(const absl::Status& status) {
  if (!absl::IsAborted(status)) return status;
  return absl::UnavailableError(status.message());
}

GradientExchange::GradientExchange(Communicator* ranks, BucketPlan plan, std::vector<size_t> order,
                                   int64_t units, GradientSums* sums, int threads)
    : ranks_(ranks),
      plan_(std::move(plan)),
      order_(std::move(order)),
      units_(units),
      sums_(sums),
      threads_(threads),
      owned_elements_(plan_.CountElements(ranks->rank())),
      states_(plan_.buckets.size()),
      squares_(plan_.buckets.back().end) {
  for (int rank = 0; rank < ranks->size(); ++rank) {
    size_t local = 0;
    for (const UnitRange& range : MaximalNodes(units, UnitsOfRank(units, rank, ranks->size()))) {
      nodes_.push_back({range, rank, rank == me() ? local++ : remote_nodes_++});
    }
  }
  PlanAdditions();
  received_ =
      AlignedBuffer(static_cast<int64_t>(remote_nodes_) * owned_elements_ * SizeOf(DType::kF32));
  int64_t received = 0;
  for (size_t b = 0; b < states_.size(); ++b) {
    if (plan_.buckets[b].owner != me()) continue;
    states_[b].received = received;
    received += plan_.buckets[b].range.size();
  }
}

int64_t GradientExchange::Bytes(const BucketPlan& plan, int64_t units, int rank, int ranks) {
  return RemoteNodes(units, rank, ranks) * plan.CountElements(rank) * SizeOf(DType::kF32);
}

void GradientExchange::PlanAdditions() {
  // Sums are accumulated in the first of this rank's nodes as soon as it takes part.
  const size_t mine = static_cast<size_t>(
      std::find_if(nodes_.begin(), nodes_.end(), [this](const Node& n) { return n.rank == me(); }) -
      nodes_.begin());
  struct Sum {
    UnitRange range;
    size_t node;
  };
  std::vector<Sum> stack;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    stack.push_back({nodes_[i].range, i});
    while (stack.size() > 1 && AreSiblings(units_, stack.end()[-2].range, stack.back().range)) {
      const Sum right = stack.back();
      stack.pop_back();
      Sum& left = stack.back();
      left.range.end = right.range.end;
      const bool into_right = right.node == mine;
      additions_.push_back({into_right ? right.node : left.node,
                            into_right ? left.node : right.node, left.range.size() == units_});
      if (into_right) left.node = right.node;
    }
  }
  PLUMB_CHECK(stack.size() == 1 && stack[0].node == mine, "the ranks' units are all units");
}

float* GradientExchange::Local(size_t bucket, size_t node) const {
  return sums_->sum(node) + plan_.buckets[bucket].range.begin;
}

float* GradientExchange::Received(size_t bucket, size_t node) const {
  return received_.as<float>() + static_cast<int64_t>(node) * owned_elements_ +
         states_[bucket].received;
}

float* GradientExchange::GetData(size_t bucket, const Node& node) const {
  return node.rank == me() ? Local(bucket, node.local) : Received(bucket, node.local);
}

size_t GradientExchange::GetBytes(size_t bucket) const {
  return static_cast<size_t>(plan_.buckets[bucket].range.size() * SizeOf(DType::kF32));
}

void GradientExchange::Start(absl::StatusOr<Communicator::Transfer> started,
                             std::vector<Communicator::Transfer>* transfers) {
  if (started.ok()) {
    transfers->push_back(*started);
  } else {
    status_.Update(RankError(started.status()));
  }
}

bool GradientExchange::AllOver(std::vector<Communicator::Transfer>* transfers) {
  while (!transfers->empty() && status_.ok()) {
    const absl::StatusOr<bool> over = ranks_->Test(&transfers->back());
    if (!over.ok()) {
      status_.Update(RankError(over.status()));
    } else if (!*over) {
      return false;
    }
    transfers->pop_back();
  }
  return status_.ok();
}

void GradientExchange::WaitAll(std::vector<Communicator::Transfer>* transfers) {
  for (Communicator::Transfer& transfer : *transfers) {
    if (!status_.ok()) break;
    status_.Update(RankError(ranks_->Wait(&transfer)));
  }
  transfers->clear();
}

void GradientExchange::Begin(StepProfile* profile) {
  profile_ = profile;
  sent_ = 0;
  unit_square_ = 0;
  is_finished_ = false;
  for (State& state : states_) state.is_ready = state.is_sent = state.is_added = false;
  for (const size_t b : order_) {
    if (plan_.buckets[b].owner == me()) StartReceives(b);
  }
}

void GradientExchange::StartReceives(size_t bucket) {
  for (const Node& node : nodes_) {
    if (node.rank == me() || !status_.ok()) continue;
    Start(ranks_->StartReceive(node.rank, kTagGradients, Received(bucket, node.local),
                               GetBytes(bucket)),
          &states_[bucket].receives);
  }
}

void GradientExchange::SetReady(size_t bucket) {
  states_[bucket].is_ready = true;
  SendReady();
}

void GradientExchange::SendReady() {
  for (; sent_ < order_.size() && states_[order_[sent_]].is_ready; ++sent_) {
    const StageTimer timer(profile_, "gradients: sending");
    Send(order_[sent_]);
  }
}

void GradientExchange::Send(size_t bucket) {
  const BucketPlan::Bucket& at = plan_.buckets[bucket];
  unit_square_ += SumOfSquares(sums_->pass() + at.range.begin, at.range.size(), threads_);
  sums_->AddLast(at.range, threads_, nullptr);
  states_[bucket].is_sent = true;
  if (at.owner == me()) return;
  for (size_t node = 0; node < sums_->nodes().size() && status_.ok(); ++node) {
    Start(ranks_->StartSend(at.owner, kTagGradients, Local(bucket, node), GetBytes(bucket)),
          &states_[bucket].sends);
  }
}

void GradientExchange::AddIfThere(size_t bucket) {
  State& state = states_[bucket];
  if (!state.is_sent || state.is_added || plan_.buckets[bucket].owner != me()) return;
  if (AllOver(&state.receives)) Add(bucket);
}

void GradientExchange::Add(size_t bucket) {
  const StageTimer timer(profile_, "gradients: adding");
  const ElementRange& range = plan_.buckets[bucket].range;
  states_[bucket].is_added = true;
  for (const Addition& addition : additions_) {
    sums_->AddTo(GetData(bucket, nodes_[addition.from]), range, threads_,
                 GetData(bucket, nodes_[addition.to]),
                 addition.is_last ? squares_.data() : nullptr);
  }
  SendBack(bucket);
}

void GradientExchange::SendBack(size_t bucket) {
  for (int rank = 0; rank < ranks_->size() && status_.ok(); ++rank) {
    if (rank == me()) continue;
    Start(ranks_->StartSend(rank, kTagGradientSums, Local(bucket, 0), GetBytes(bucket)),
          &states_[bucket].sends);
  }
}

void GradientExchange::Progress() {
  // In order: buckets behind one that has not arrived are checked later.
  for (size_t i = 0; i < sent_ && status_.ok(); ++i) {
    const size_t b = order_[i];
    if (plan_.buckets[b].owner == me()) {
      if (states_[b].is_added) continue;
      AddIfThere(b);
    } else {
      if (states_[b].sends.empty() || AllOver(&states_[b].sends)) continue;
    }
    break;
  }
}

absl::Status GradientExchange::Finish() {
  if (is_finished_) return status_;
  is_finished_ = true;
  for (State& state : states_) state.is_ready = true;
  SendReady();
  // Results are received into the memory of the sums, so those must have been sent before.
  for (const size_t b : order_) {
    if (!status_.ok()) break;
    State& state = states_[b];
    if (plan_.buckets[b].owner == me()) {
      if (state.is_added) continue;
      {
        const StageTimer timer(profile_, "gradients: waiting");
        WaitAll(&state.receives);
      }
      if (status_.ok()) Add(b);
      continue;
    }
    const StageTimer timer(profile_, "gradients: waiting");
    WaitAll(&state.sends);
    if (!status_.ok()) continue;
    Start(ranks_->StartReceive(plan_.buckets[b].owner, kTagGradientSums, Local(b, 0), GetBytes(b)),
          &state.receives);
  }
  const StageTimer timer(profile_, "gradients: waiting");
  for (const size_t b : order_) {
    State& state = states_[b];
    WaitAll(&state.receives);
    WaitAll(&state.sends);
  }
  return status_;
}

}  // namespace plumb
