// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// Sums of a b over groups of channels: row_dot per row, mul_reduce over all rows.

// Returns the number of groups of channels.
int64_t CountGroups(const Attrs& attrs, const TensorType& a) {
  return attrs.Has("size") ? attrs.GetInt("size") : a.shape.last();
}

template <bool kOverRows>
absl::StatusOr<std::vector<TensorType>> InferReduce(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "a"));
  const TensorType& a = types.in(0);
  if (types.has(1) && types.in(1) != a) {
    PLUMB_ASSIGN_OR_RETURN(const TensorType type, BroadcastType(types.inputs));
    if (type != a) return absl::InvalidArgumentError("b must not be wider than a");
  }
  const int64_t size = CountGroups(types.attrs, a), d = a.shape.last();
  if (size < 1 || d % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("size must divide ", d));
  }
  if (kOverRows) return std::vector<TensorType>{F32({size})};
  if (a.shape.rank() < 2) return absl::InvalidArgumentError("a must have rows");
  std::vector<int64_t> dims(a.shape.dims().begin(), a.shape.dims().end());
  dims.back() = size;
  return std::vector<TensorType>{{a.dtype, Shape(dims)}};
}

// y_l = sum over r and j in group l of a_rj b_rj, so
//   dL/da_rj = dL/dy_l(j) b_rj,
//   dL/db_rj = dL/dy_l(j) a_rj, summed over the channels and rows that b_rj is broadcast to.
std::vector<ValueId> VjpReduce(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], dy = d_outputs[0];
  const ValueId right = node.inputs.size() > 1 ? node.inputs[1] : kNoValue;
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    const ValueId product = right == kNoValue ? dy : b.Apply("mul", {right, dy});
    const bool whole = b.type(product) == b.type(left);
    d_inputs[0] = whole ? product : b.Apply("expand", {product, left});
  }
  if (right != kNoValue && wanted[1]) {
    const TensorType type = b.type(right);
    d_inputs[1] = ReduceTo(b, type, left, dy);
  }
  return d_inputs;
}

template <bool kOverRows>
absl::Status ReferenceReduce(const ReferenceArgs& args) {
  const int64_t n = args.shape(0).num_elements(), d = args.shape(0).last();
  const int64_t size = CountGroups(args.attrs, args.inputs[0]->type);
  for (int64_t e = 0; e < n; ++e) {
    double product = args.f(0)[static_cast<size_t>(e)];
    if (args.has(1)) {
      const BroadcastOperand b(args.inputs[1]->type, d);
      product *= args.f(1)[static_cast<size_t>(b.Index(e / d, e % d))];
    }
    const int64_t row = kOverRows ? 0 : e / d;
    args.out(0)[static_cast<size_t>(row * size + e % d * size / d)] += product;
  }
  return absl::OkStatus();
}

template <bool kOverRows>
OpDef ReduceOp(const char* name) {
  OpDef op;
  op.name = name;
  op.min_inputs = 1;
  op.max_inputs = 2;
  op.infer = InferReduce<kOverRows>;
  op.vjp = VjpReduce;
  op.make_kernel = ProgramKernelFactory(name);
  op.reference = ReferenceReduce<kOverRows>;
  if (!kOverRows) op.token_wise = InputsWithRows;
  return op;
}

}  // namespace

void RegisterReduce(OpRegistry* registry) {
  registry->Add(ReduceOp<false>("row_dot"));
  registry->Add(ReduceOp<true>("mul_reduce"));
}

}  // namespace plumb
