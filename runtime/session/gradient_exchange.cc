// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/gradient_exchange.h"

#include <algorithm>
#include <cstring>
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

// Packs numbers that are already rounded to bf16.
void PackBf16(const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof(bits));
    to[i] = static_cast<uint16_t>(bits >> 16);
  }
}

// Unpacks bf16. `from` may be the second half of `to`.
void UnpackBf16(const uint16_t* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, from + i, sizeof(half));
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
}

}  // namespace

absl::Status RankError(const absl::Status& status) {
  if (!absl::IsAborted(status)) return status;
  return absl::UnavailableError(status.message());
}

GradientExchange::GradientExchange(Communicator* ranks, BucketPlan plan, std::vector<size_t> order,
                                   const Options& options, GradientSums* sums, int threads)
    : ranks_(ranks),
      plan_(std::move(plan)),
      order_(std::move(order)),
      options_(options),
      sums_(sums),
      threads_(threads),
      owned_elements_(plan_.ElementsOf(ranks->rank())),
      elements_(plan_.buckets.back().range.end),
      states_(plan_.buckets.size()),
      squares_(plan_.buckets.back().end) {
  for (int rank = 0; rank < ranks->size(); ++rank) {
    size_t local = 0;
    for (const UnitRange& range :
         MaximalNodes(options.units, UnitsOfRank(options.units, rank, ranks->size()))) {
      nodes_.push_back({range, rank, rank == me() ? local++ : remote_nodes_++});
    }
  }
  PlanAdditions();
  received_ =
      AlignedBuffer(static_cast<int64_t>(remote_nodes_) * owned_elements_ * SizeOf(DType::kF32));
  if (options.wire == DType::kBF16) {
    wire_ = AlignedBuffer(static_cast<int64_t>(sums->nodes().size()) * elements_ *
                          SizeOf(DType::kBF16));
  }
  int64_t received = 0;
  for (size_t b = 0; b < states_.size(); ++b) {
    if (plan_.buckets[b].owner != me()) continue;
    states_[b].received = received;
    received += plan_.buckets[b].range.size();
  }
}

int64_t GradientExchange::Bytes(const BucketPlan& plan, const Options& options, int rank,
                                int ranks) {
  const int64_t elements = plan.buckets.back().range.end;
  const UnitRange mine = UnitsOfRank(options.units, rank, ranks);
  const auto local = static_cast<int64_t>(MaximalNodes(options.units, mine).size());
  return RemoteNodes(options.units, rank, ranks) * plan.ElementsOf(rank) * SizeOf(DType::kF32) +
         (options.wire == DType::kBF16 ? local * elements * SizeOf(DType::kBF16) : 0);
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
    while (stack.size() > 1 &&
           AreSiblings(options_.units, stack.end()[-2].range, stack.back().range)) {
      const Sum right = stack.back();
      stack.pop_back();
      Sum& left = stack.back();
      left.range.end = right.range.end;
      const bool into_right = right.node == mine;
      additions_.push_back({into_right ? right.node : left.node,
                            into_right ? left.node : right.node,
                            left.range.size() == options_.units});
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

float* GradientExchange::DataOf(size_t bucket, const Node& node) const {
  return node.rank == me() ? Local(bucket, node.local) : Received(bucket, node.local);
}

size_t GradientExchange::WireBytes(size_t bucket) const {
  return static_cast<size_t>(plan_.buckets[bucket].range.size() * SizeOf(options_.wire));
}

void* GradientExchange::WireOf(size_t bucket, size_t node) const {
  if (options_.wire != DType::kBF16) return Local(bucket, node);
  return wire_.as<uint16_t>() + static_cast<int64_t>(node) * elements_ +
         plan_.buckets[bucket].range.begin;
}

void* GradientExchange::ToWire(size_t bucket, size_t node) {
  void* const wire = WireOf(bucket, node);
  if (options_.wire == DType::kBF16) {
    PackBf16(Local(bucket, node), plan_.buckets[bucket].range.size(), static_cast<uint16_t*>(wire));
  }
  return wire;
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
    const size_t bytes = WireBytes(bucket);
    // Received bf16 is stored in the second half of its f32 buffer, and unpacked in place.
    auto* const all = reinterpret_cast<char*>(Received(bucket, node.local));
    const size_t offset = options_.wire == DType::kBF16 ? bytes : 0;
    Start(ranks_->StartReceive(node.rank, kTagGradients, all + offset, bytes),
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
    Start(ranks_->StartSend(at.owner, kTagGradients, ToWire(bucket, node), WireBytes(bucket)),
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
  if (options_.wire == DType::kBF16) {
    for (size_t node = 0; node < remote_nodes_; ++node) {
      float* const to = Received(bucket, node);
      UnpackBf16(reinterpret_cast<uint16_t*>(to) + range.size(), range.size(), to);
    }
  }
  for (const Addition& addition : additions_) {
    sums_->AddTo(DataOf(bucket, nodes_[addition.from]), range, threads_,
                 DataOf(bucket, nodes_[addition.to]), addition.is_last ? squares_.data() : nullptr);
  }
  if (options_.sends_back) SendBack(bucket);
}

void GradientExchange::SendBack(size_t bucket) {
  const void* const wire = ToWire(bucket, 0);
  for (int rank = 0; rank < ranks_->size() && status_.ok(); ++rank) {
    if (rank == me()) continue;
    Start(ranks_->StartSend(rank, kTagWeights, wire, WireBytes(bucket)), &states_[bucket].sends);
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
    if (!options_.sends_back || !status_.ok()) continue;
    Start(ranks_->StartReceive(plan_.buckets[b].owner, kTagWeights, WireOf(b, 0), WireBytes(b)),
          &state.receives);
  }
  const StageTimer timer(profile_, "gradients: waiting");
  for (const size_t b : order_) {
    State& state = states_[b];
    WaitAll(&state.receives);
    WaitAll(&state.sends);
    if (plan_.buckets[b].owner == me() || options_.wire != DType::kBF16 || !options_.sends_back) {
      continue;
    }
    UnpackBf16(static_cast<const uint16_t*>(WireOf(b, 0)), plan_.buckets[b].range.size(),
               Local(b, 0));
  }
  return status_;
}

absl::Status GradientExchange::GatherFromOwners(const ParameterStore& weights) {
  const StageTimer timer(profile_, "weights: sending and waiting");
  std::vector<Communicator::Transfer> transfers;
  for (const BucketPlan::Bucket& bucket : plan_.buckets) {
    if (bucket.range.size() == 0) continue;  // frozen
    for (const absl::Span<std::byte> part : weights.Storage(bucket.first, bucket.end)) {
      for (int rank = 0; rank < ranks_->size() && status_.ok(); ++rank) {
        if (rank == me()) continue;
        if (bucket.owner == me()) {
          Start(ranks_->StartSend(rank, kTagWeights, part.data(), part.size()), &transfers);
        } else if (bucket.owner == rank) {
          Start(ranks_->StartReceive(rank, kTagWeights, part.data(), part.size()), &transfers);
        }
      }
    }
  }
  WaitAll(&transfers);
  return status_;
}

}  // namespace plumb
