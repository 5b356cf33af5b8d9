// SPDX-License-Identifier: Apache-2.0
// GradientExchange: the sums of gradients over all ranks of a job, bucket by bucket: each rank
// sends the sums of its units to the bucket's owner, which adds them in the order of the UnitTree
// (reduce-scatter), and sends the result back where everyone wants it (all-gather). Transfers go on
// while a pass computes. The results do not depend on the number of ranks, nor on when messages
// come. Allocates in its constructor, and lists of transfers. Thread-compatible.
//
// Errors of messages are final: the job is to end. They are never kAborted, which is a step that
// diverged.
#ifndef PLUMB_RUNTIME_SESSION_GRADIENT_EXCHANGE_H_
#define PLUMB_RUNTIME_SESSION_GRADIENT_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/bucket_plan.h"
#include "runtime/session/gradient_sums.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/step_profile.h"
#include "runtime/session/unit_tree.h"

namespace plumb {

// An error of the communicator, as a session gives it.
absl::Status RankError(const absl::Status& status);

class GradientExchange {
 public:
  struct Options {
    int64_t units = 0;
    DType wire = DType::kF32;
    bool sends_back = true;  // the results, to all; else only owners have theirs
  };
  // `sums`, of this rank's units, must outlive it. `order`: the buckets' indices in the order in
  // which they are sent, the same on all ranks.
  GradientExchange(Communicator* ranks, BucketPlan plan, std::vector<size_t> order,
                   const Options& options, GradientSums* sums, int threads);

  // Bytes that rank `rank` of `ranks` takes.
  static int64_t Bytes(const BucketPlan& plan, const Options& options, int rank, int ranks);
  int64_t bytes() const { return received_.size() + wire_.size(); }

  const BucketPlan& plan() const { return plan_; }

  // Before a step: what other ranks send may come.
  void Begin(StepProfile* profile);
  // The gradients of a bucket are there in the last unit's pass: it is added to the sums, and
  // begins to travel when those before it in the order have.
  void SetReady(size_t bucket);
  // Carries transfers on. Returns at once.
  void Progress();
  // All buckets are ready. Returns when all is done, and at once when it was: `sums->sum(0)` has
  // the results of this rank's buckets, or of all; squares()[i] those of the parameters that it
  // owns.
  absl::Status Finish();

  // Of the last unit's own gradients; infinite or NaN where one of them is.
  double unit_square() const { return unit_square_; }
  const std::vector<double>& squares() const { return squares_; }  // by parameter

  // Each owner's weights to all: where low planes are not kept by all, what programs read.
  absl::Status GatherFromOwners(const ParameterStore& weights);

 private:
  // A sum of the tree that some rank sends.
  struct Node {
    UnitRange range;
    int rank;
    size_t local;  // of this rank's sums; of others': of those that it receives
  };
  // to += from, of nodes.
  struct Addition {
    size_t to, from;
    bool is_last;
  };
  struct State {
    std::vector<Communicator::Transfer> receives, sends;
    bool is_ready = false, is_sent = false, is_added = false;
    int64_t received = 0;  // where the bucket begins in what an owner receives of one node
  };
  int me() const { return ranks_->rank(); }
  void PlanAdditions();
  void SendReady();
  void Send(size_t bucket);
  void StartReceives(size_t bucket);
  void AddIfThere(size_t bucket);
  void Add(size_t bucket);
  void SendBack(size_t bucket);
  // Whether all are over; keeps the first error.
  bool AllOver(std::vector<Communicator::Transfer>* transfers);
  void WaitAll(std::vector<Communicator::Transfer>* transfers);
  void Start(absl::StatusOr<Communicator::Transfer> started,
             std::vector<Communicator::Transfer>* transfers);
  float* Local(size_t bucket, size_t node) const;
  float* Received(size_t bucket, size_t node) const;
  float* DataOf(size_t bucket, const Node& node) const;
  // What stands for the elements of a bucket in a message.
  void* ToWire(size_t bucket, size_t node);
  void* WireOf(size_t bucket, size_t node) const;
  size_t WireBytes(size_t bucket) const;

  Communicator* const ranks_;
  const BucketPlan plan_;
  const std::vector<size_t> order_;
  const Options options_;
  GradientSums* const sums_;
  const int threads_;
  std::vector<Node> nodes_;  // of all ranks, in the order of the units
  std::vector<Addition> additions_;
  size_t remote_nodes_ = 0;
  int64_t owned_elements_ = 0, elements_ = 0;
  AlignedBuffer received_;     // [remote nodes][owned elements]
  AlignedBuffer wire_;         // of bf16: [local nodes][elements]
  std::vector<State> states_;  // by bucket
  std::vector<double> squares_;
  double unit_square_ = 0;
  size_t sent_ = 0;  // buckets, in order
  bool is_finished_ = true;
  StepProfile* profile_ = nullptr;
  absl::Status status_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_GRADIENT_EXCHANGE_H_
