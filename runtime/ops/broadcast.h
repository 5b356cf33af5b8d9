// SPDX-License-Identifier: Apache-2.0
// Broadcasting of operands: tensors of rows ([.., w], rank 2 or more) and vectors ([w]). The widest
// has d channels; each element of one of w channels, w a divisor of d, stands for d / w consecutive
// ones, and a vector stands for every row. Stateless.
#ifndef PLUMB_RUNTIME_OPS_BROADCAST_H_
#define PLUMB_RUNTIME_OPS_BROADCAST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/op.h"

namespace plumb {

// The type of an elementwise result of the operands (null: absent). Errors: kInvalidArgument for
// widths that do not divide, other rows, f32 rows beside bf16 ones, vectors that are not f32.
absl::StatusOr<TensorType> BroadcastType(absl::Span<const TensorType* const> operands);

// Where the elements of an operand are, for a result of d channels.
struct BroadcastOperand {
  int64_t row_stride = 0;  // in elements; 0: a vector
  int64_t group = 1;       // channels that an element stands for
  bool bf16 = false;

  BroadcastOperand() = default;
  BroadcastOperand(const TensorType& type, int64_t d);
  int64_t Index(int64_t row, int64_t channel) const { return row * row_stride + channel / group; }
};

// Inputs that have rows: those in which an elementwise op is token-wise.
std::vector<size_t> InputsWithRows(const OpTypes& types);

// The gradient of an operand of type `type`, of a product with `other` (kNoValue: with 1), from the
// gradient dy of the broadcast product: sums of dy * other over what the operand stands for.
ValueId ReduceTo(GraphBuilder& b, const TensorType& type, ValueId dy, ValueId other);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_BROADCAST_H_
