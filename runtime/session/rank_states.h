// SPDX-License-Identifier: Apache-2.0
// RankStates: the states of training of a job of ranks, for the one rank that keeps them in files:
// while rank 0 reads and writes, the other ranks answer. Thread-compatible.
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
  // All must outlive it. `average` may be null. `plan`: who owns which states, where each rank has
  // only its own.
  RankStates(Communicator* ranks, const BucketPlan& plan, const Optimizer* optimizer,
             ParameterStore* weights, const ParameterStore* average);
  ~RankStates() override;
  RankStates(const RankStates&) = delete;

  // Where a session stands, beside its states.
  struct Standing {
    int64_t steps = 0;
    double learning_rate_scale = 1;
  };
  // Collective: rank 0 calls `use`, which may read and write all states of its session; the others
  // answer until it has returned. What it wrote everyone has then: weights, norms' states, the
  // average, moments, and rank 0's `standing`. Its error everyone gets.
  absl::Status Use(absl::FunctionRef<absl::Status()> use, Standing* standing);

  // Whether this is rank 0 in Use.
  bool in_use() const { return in_use_; }
  // Whether states of other ranks can be read and written: kFailedPrecondition outside of Use, and
  // in it the first error of the messages.
  absl::Status CheckInUse() const override;
  // Something was written, or may have been.
  void SetWritten() { written_ = true; }

  // Optimizer::Remote. REQUIRES: in_use(). Errors are those of Use.
  void Read(const Optimizer::StateId& state, int64_t begin, int64_t n, float* to) override;
  void Write(const Optimizer::StateId& state, int64_t begin, int64_t n, const float* from) override;
  // ParameterStore::Remote. The same.
  void ReadLow(size_t entry, int64_t begin, int64_t n, uint16_t* to) override;
  void WriteLow(size_t entry, int64_t begin, int64_t n, const uint16_t* from) override;

 private:
  struct Request;
  int OwnerOf(size_t parameter) const;
  void Send(int to, const Request& request);
  void Ask(const Request& request, void* to);
  void Give(const Request& request, const void* from);
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
