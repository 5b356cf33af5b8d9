// SPDX-License-Identifier: Apache-2.0
// RankStates: access to the training states of all ranks of a job, for rank 0, which reads and
// writes the files. The other ranks answer its requests meanwhile. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_RANK_STATES_H_
#define PLUMB_RUNTIME_SESSION_RANK_STATES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/bucket_plan.h"
#include "runtime/session/optimizer.h"
#include "runtime/session/parameter_store.h"

namespace plumb {

class RankStates : public Optimizer::Remote, public ParameterStore::Remote {
 public:
  // Creates the access for a session. All arguments must outlive this; `average` may be null.
  // `plan` defines the owner of each state if states are sharded.
  RankStates(Communicator* ranks, const BucketPlan& plan, const Optimizer* optimizer,
             ParameterStore* weights, const ParameterStore* average);
  ~RankStates() override;
  RankStates(const RankStates&) = delete;

  // Progress of a session, besides its states.
  struct Standing {
    int64_t steps = 0;
    double learning_rate_scale = 1;
  };
  // Calls `use` on rank 0, which may read and write all states of the session; the other ranks
  // answer until it returns. If it wrote, all ranks then have the weights, norms' states, average
  // and moments. All ranks get rank 0's `standing`. Collective. Errors: that of `use`, on all
  // ranks.
  absl::Status Use(absl::FunctionRef<absl::Status()> use, Standing* standing);

  // Returns true on rank 0 during Use.
  bool in_use() const { return in_use_; }
  // Returns OK if other ranks' states can be read and written. Errors: kFailedPrecondition outside
  // of Use; in it, the first communication error.
  absl::Status CheckInUse() const override;
  // Records that states were written, or may have been.
  void SetWritten() { written_ = true; }

  // Implements Optimizer::Remote. Requires: in_use(). Use returns the errors.
  void Read(const Optimizer::StateId& state, int64_t begin, int64_t n, float* to) override;
  void Write(const Optimizer::StateId& state, int64_t begin, int64_t n, const float* from) override;
  // Implements ParameterStore::Remote. Requires: in_use().
  void ReadLow(size_t entry, int64_t begin, int64_t n, uint16_t* to) override;
  void WriteLow(size_t entry, int64_t begin, int64_t n, const uint16_t* from) override;

 private:
  struct Request;
  int OwnerOf(size_t parameter) const;
  void Send(int to, const Request& request);
  void ReadRemote(const Request& request, void* to);
  void WriteRemote(const Request& request, const void* from);
  absl::Span<std::byte> DataOf(const Request& request) const;
  absl::Status Answer(Standing* standing, bool* written);
  absl::Status SendWritten();

  Communicator* const ranks_;
  const BucketPlan& plan_;
  const Optimizer* const optimizer_;
  ParameterStore* const weights_;
  const ParameterStore* const average_;
  bool in_use_ = false, written_ = false;
  absl::Status status_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_RANK_STATES_H_
