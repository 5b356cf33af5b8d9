// SPDX-License-Identifier: Apache-2.0
// The states of a TrainSession between steps: their memory, finiteness, and sharing.
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/kernels/simd/tensor_stats.h"
#include "runtime/ranks/collectives.h"
#include "runtime/session/divergence.h"
#include "runtime/session/train_session.h"

namespace plumb {

TrainMemory TrainSession::memory() const {
  TrainMemory memory;
  memory.weights = parameters_.bytes();
  memory.gradients = sums_.bytes() + grad_squares_.size();
  if (exchange_ != nullptr) memory.exchange = exchange_->bytes();
  memory.moments = optimizer_.state_bytes();
  if (average_ != nullptr) memory.average = average_->bytes();
  memory.norm_states = parameters_.states().size * SizeOf(DType::kF32) +
                       states_before_step_.size() + states_before_unit_.size();
  memory.inputs = inputs_.bytes() + random_.size() + loss_.size() + loss_weight_.size() +
                  host_loss_function_.size();
  for (const Batch& batch : micro_batches_) memory.inputs += batch.bytes();
  memory.workspace = executables_.workspace_bytes() + optimizer_.scratch_bytes();
  return memory;
}

absl::Status TrainSession::ShareStates(absl::FunctionRef<absl::Status()> use) {
  if (ranks_ == nullptr) return use();
  const absl::Status used = ranks_->rank() == 0 ? use() : absl::OkStatus();
  std::vector<absl::Span<std::byte>> parts = optimizer_.Storage();
  for (const ParameterStore* store :
       {static_cast<const ParameterStore*>(&parameters_), average()}) {
    if (store == nullptr) continue;
    for (const absl::Span<std::byte> part : store->Storage()) parts.push_back(part);
  }
  parts.emplace_back(reinterpret_cast<std::byte*>(&step_), sizeof(step_));
  parts.emplace_back(reinterpret_cast<std::byte*>(&learning_rate_scale_),
                     sizeof(learning_rate_scale_));
  for (const absl::Span<std::byte> part : parts) {
    PLUMB_RETURN_IF_ERROR(RankError(Broadcast(ranks_, 0, part.data(), part.size())));
  }
  return AllOk(ranks_, used);
}

absl::Status TrainSession::CheckFinite() const {
  PLUMB_RETURN_IF_ERROR(half_done_);
  const auto error = [this](absl::string_view what) {
    return absl::AbortedError(absl::StrCat("diverged at step ", step_, ": its update overflowed; ",
                                           what, " is not finite though the gradient was"));
  };
  const auto check = [&](absl::string_view kind, const TensorStats& stats,
                         const std::string& name) {
    if (stats.nonfinite == 0) return absl::OkStatus();
    const std::string place = GetPlace(name);
    return error(absl::StrCat(kind, name, place.empty() ? "" : absl::StrCat(" (", place, ")")));
  };
  const ParameterLayout& layout = parameters_.layout();
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const ParameterLayout::Entry& entry = layout.entries[i];
    const int64_t n = entry.end - entry.begin;
    PLUMB_RETURN_IF_ERROR(check("",
                                parameters_.is_split(i)
                                    ? ComputeStats(parameters_.split(i), n, threads_)
                                    : ComputeStats(parameters_.floats(i), n, threads_),
                                entry.name));
    for (const Optimizer::State& state : optimizer_.GetStates(i)) {
      PLUMB_RETURN_IF_ERROR(check(absl::StrCat(state.what, " of "),
                                  ComputeStats(state.data, state.n, threads_), entry.name));
    }
  }
  for (const StateLayout::Entry& entry : parameters_.states().entries) {
    PLUMB_RETURN_IF_ERROR(
        check("", ComputeStats(parameters_.state_data() + entry.begin, entry.elements, threads_),
              entry.name));
  }
  return absl::OkStatus();
}

}  // namespace plumb
