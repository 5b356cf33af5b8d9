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

// row_dot

absl::StatusOr<std::vector<TensorType>> InferRowDot(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const TensorType type, BroadcastType(types.inputs));
  if (type != types.in(0) || type.shape.rank() < 2) {
    return absl::InvalidArgumentError("a must have rows, and b must not be wider");
  }
  const int64_t size = types.attrs.GetInt("size");
  if (size < 1 || type.shape.last() % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("size must divide ", type.shape.last()));
  }
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims.back() = size;
  return std::vector<TensorType>{{type.dtype, Shape(dims)}};
}

// y_rl = sum over j in group l of a_rj b_rj, so
//   dL/da_rj = dL/dy_rl(j) b_rj,
//   dL/db_rj = dL/dy_rl(j) a_rj, summed over what b_rj stands for.
std::vector<ValueId> VjpRowDot(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], dy = d_outputs[0];
  const ValueId right = node.inputs.size() > 1 ? node.inputs[1] : kNoValue;
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    const ValueId product = right == kNoValue ? dy : b.Apply("mul", {dy, right});
    const bool whole = b.type(product).shape.last() == b.type(left).shape.last();
    d_inputs[0] = whole ? product : b.Apply("expand", {product, left});
  }
  if (right != kNoValue && wanted[1]) {
    const TensorType type = b.type(right);
    d_inputs[1] = ReduceTo(b, type, left, dy);
  }
  return d_inputs;
}

absl::Status ReferenceRowDot(const ReferenceArgs& args) {
  const int64_t size = args.attrs.GetInt("size"), d = args.shape(0).last();
  for (int64_t e = 0; e < args.shape(0).num_elements(); ++e) {
    double product = args.f(0)[static_cast<size_t>(e)];
    if (args.has(1)) {
      const BroadcastOperand b(args.inputs[1]->type, d);
      product *= args.f(1)[static_cast<size_t>(b.Index(e / d, e % d))];
    }
    args.out(0)[static_cast<size_t>(e / d * size + e % d * size / d)] += product;
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterRowDot(OpRegistry* registry) {
  OpDef op;
  op.name = "row_dot";
  op.min_inputs = 1;
  op.max_inputs = 2;
  op.infer = InferRowDot;
  op.vjp = VjpRowDot;
  op.make_kernel = ProgramKernelOf("row_dot");
  op.reference = ReferenceRowDot;
  op.token_wise = InputsWithRows;
  registry->Add(std::move(op));
}

}  // namespace plumb
