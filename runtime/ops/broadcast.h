// SPDX-License-Identifier: Apache-2.0
// Broadcasting of operands: tensors of rows ([.., w], rank 2 or more) and vectors ([w]). The widest
// has d channels. An operand of w channels, w a divisor of d, repeats each element for d / w
// consecutive channels; a vector is repeated for every row. Stateless.
#ifndef PLUMB_RUNTIME_OPS_BROADCAST_H_
#define PLUMB_RUNTIME_OPS_BROADCAST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/op.h"

namespace plumb {

// Returns the type of an elementwise result of the operands (null: absent). Errors:
// kInvalidArgument for widths that do not divide, different rows, mixed f32 and bf16 rows, and
// vectors that are not f32.
absl::StatusOr<TensorType> BroadcastType(absl::Span<const TensorType* const> operands);

// Strides of an operand for a result of d channels.
struct BroadcastOperand {
  int64_t row_stride = 0;  // in elements; 0: a vector
  int64_t group = 1;       // channels per element
  bool bf16 = false;

  BroadcastOperand() = default;
  BroadcastOperand(const TensorType& type, int64_t d);
  int64_t Index(int64_t row, int64_t channel) const { return row * row_stride + channel / group; }
};

// Returns the inputs that have rows: those in which an elementwise op is token-wise.
std::vector<size_t> InputsWithRows(const OpTypes& types);

// Returns the gradient of an operand of type `type` in its broadcast product with `other`
// (kNoValue: 1), given the product's gradient dy: sums dy * other over the channels and rows of
// each element.
ValueId ReduceTo(GraphBuilder& b, const TensorType& type, ValueId dy, ValueId other);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_BROADCAST_H_
