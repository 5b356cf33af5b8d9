// SPDX-License-Identifier: Apache-2.0
// GradientExchange: sums gradients over all ranks of a job, bucket by bucket. Each rank sends the
// sums of its units to the bucket's owner, which adds them in the order of the UnitTree
// (reduce-scatter) and sends the result to all ranks (all-gather). Transfers overlap with the pass.
// The results do not depend on the number of ranks or the order in which messages arrive. Allocates
// its buffers in the constructor, and later only lists of transfers. Thread-compatible.
//
// Communication errors are final: the job must end. They are never kAborted, which is the code of a
// step that diverged.
#ifndef PLUMB_RUNTIME_SESSION_GRADIENT_EXCHANGE_H_
#define PLUMB_RUNTIME_SESSION_GRADIENT_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/bucket_plan.h"
#include "runtime/session/gradient_sums.h"
#include "runtime/session/step_profile.h"
#include "runtime/session/unit_tree.h"

namespace plumb {

// Converts an error of the communicator to one of a session: kAborted becomes kUnavailable.
absl::Status RankError(const absl::Status& status);

class GradientExchange {
 public:
  // Creates an exchange of `sums`, this rank's units of the `units` of a step, which must outlive
  // it. `order` has the indices of the buckets in the order in which they are sent, the same on all
  // ranks.
  GradientExchange(Communicator* ranks, BucketPlan plan, std::vector<size_t> order, int64_t units,
                   GradientSums* sums, int threads);

  // Returns the bytes that rank `rank` of `ranks` allocates.
  static int64_t Bytes(const BucketPlan& plan, int64_t units, int rank, int ranks);
  int64_t bytes() const { return received_.size(); }

  const BucketPlan& plan() const { return plan_; }

  // Begins a step: starts to receive the sums of other ranks.
  void Begin(StepProfile* profile);
  // Marks a bucket's gradients of the last unit as complete. They are added to the sums, and sent
  // once all buckets before it in the order are sent.
  void SetReady(size_t bucket);
  // Advances transfers without waiting.
  void Progress();
  // Completes the exchange; every bucket counts as ready. Waits until all transfers are done;
  // returns at once if they already are. Afterwards `sums->sum(0)` has the results, and
  // squares()[i] is valid for the parameters that this rank owns.
  absl::Status Finish();

  // Returns the sum of squares of the last unit's own gradients; infinite or NaN if one of them is.
  double unit_square() const { return unit_square_; }
  const std::vector<double>& squares() const { return squares_; }  // indexed by parameter

 private:
  // A node of the UnitTree whose sum some rank sends.
  struct Node {
    UnitRange range;
    int rank;
    size_t local;  // index in this rank's sums, or in those that it receives
  };
  // to += from, indices of nodes_.
  struct Addition {
    size_t to, from;
    bool is_last;
  };
  struct State {
    std::vector<Communicator::Transfer> receives, sends;
    bool is_ready = false, is_sent = false, is_added = false;
    int64_t received = 0;  // offset of the bucket in an owner's elements of one node
  };
  int me() const { return ranks_->rank(); }
  void PlanAdditions();
  void SendReady();
  void Send(size_t bucket);
  void StartReceives(size_t bucket);
  void AddIfThere(size_t bucket);
  void Add(size_t bucket);
  void SendBack(size_t bucket);
  // Returns true if all transfers are done. Keeps the first error in status_.
  bool AllOver(std::vector<Communicator::Transfer>* transfers);
  void WaitAll(std::vector<Communicator::Transfer>* transfers);
  void Start(absl::StatusOr<Communicator::Transfer> started,
             std::vector<Communicator::Transfer>* transfers);
  float* Local(size_t bucket, size_t node) const;
  float* Received(size_t bucket, size_t node) const;
  float* GetData(size_t bucket, const Node& node) const;
  size_t GetBytes(size_t bucket) const;

  Communicator* const ranks_;
  const BucketPlan plan_;
  const std::vector<size_t> order_;
  const int64_t units_;
  GradientSums* const sums_;
  const int threads_;
  std::vector<Node> nodes_;  // nodes of all ranks, ordered by unit
  std::vector<Addition> additions_;
  size_t remote_nodes_ = 0;
  int64_t owned_elements_ = 0;
  AlignedBuffer received_;     // [remote nodes][owned elements]
  std::vector<State> states_;  // indexed by bucket
  std::vector<double> squares_;
  double unit_square_ = 0;
  size_t sent_ = 0;  // number of buckets sent, in order
  bool is_finished_ = true;
  StepProfile* profile_ = nullptr;
  absl::Status status_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_GRADIENT_EXCHANGE_H_
