// SPDX-License-Identifier: Apache-2.0
// HostLoss: a loss that is computed outside of the graph, for op host_loss. Programs are shared by
// sessions, so the op gets the function as an operand, by its address, and not as an attribute.
#ifndef PLUMB_RUNTIME_OPS_HOST_LOSS_H_
#define PLUMB_RUNTIME_OPS_HOST_LOSS_H_

#include <cstdint>
#include <cstring>
#include <functional>

#include "absl/status/statusor.h"

namespace plumb {

// Returns the loss of `logits`, and writes its derivative by each of them to `gradient`, which has
// their shape and contains zeros. Called on the thread that runs the program, in the default
// floating-point mode.
using HostLoss = std::function<absl::StatusOr<double>(const float* logits, float* gradient)>;

// Number of elements of the operand.
inline constexpr int64_t kHostLossWords = sizeof(const HostLoss*) / sizeof(int32_t);

// Sets the operand to a function, which must outlive the runs.
inline void SetHostLoss(const HostLoss* loss, int32_t* operand) {
  std::memcpy(operand, &loss, sizeof(loss));
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_HOST_LOSS_H_
