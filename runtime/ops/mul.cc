// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// mul

// A vector by an f32 one that is no wider: bf16 vectors are scaled too.
bool IsScaledVector(const OpTypes& types) {
  const TensorType& b = types.in(1);
  return b.dtype == DType::kF32 && b.shape.rank() == 1 &&
         types.in(0).shape.last() % b.shape[0] == 0;
}

absl::StatusOr<std::vector<TensorType>> InferMul(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "a"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "b"));
  if (types.in(1) == types.in(0)) return std::vector<TensorType>{types.in(0)};
  if (IsScaledVector(types)) return std::vector<TensorType>{types.in(0)};
  PLUMB_ASSIGN_OR_RETURN(TensorType type, BroadcastType(types.inputs));
  return std::vector<TensorType>{std::move(type)};
}

// y_rj = a_rj b_rj, broadcast, so
//   dL/da_rj = dL/dy_rj b_rj, summed over what a_rj stands for, and the same for b.
std::vector<ValueId> VjpMul(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                            const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], right = node.inputs[1], dy = d_outputs[0];
  std::vector<ValueId> d_inputs = {kNoValue, kNoValue};
  const TensorType left_type = b.type(left), right_type = b.type(right);
  if (wanted[0]) d_inputs[0] = ReduceTo(b, left_type, dy, right);
  if (wanted[1]) d_inputs[1] = ReduceTo(b, right_type, dy, left);
  return d_inputs;
}

absl::Status ReferenceMul(const ReferenceArgs& args) {
  const Shape& out = args.outputs[0]->type.shape;
  const int64_t d = out.last();
  const BroadcastOperand a(args.inputs[0]->type, d), b(args.inputs[1]->type, d);
  for (int64_t e = 0; e < out.num_elements(); ++e) {
    args.out(0)[static_cast<size_t>(e)] = args.f(0)[static_cast<size_t>(a.Index(e / d, e % d))] *
                                          args.f(1)[static_cast<size_t>(b.Index(e / d, e % d))];
  }
  return absl::OkStatus();
}

// mul_reduce

absl::StatusOr<std::vector<TensorType>> InferReduce(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "a"));
  const bool alike = types.has(1) && types.in(1) == types.in(0);
  if (!alike) {
    PLUMB_ASSIGN_OR_RETURN(const TensorType type, BroadcastType(types.inputs));
    if (type != types.in(0)) return absl::InvalidArgumentError("b must not be wider than a");
  }
  const int64_t size = types.attrs.GetInt("size"), d = types.in(0).shape.last();
  if (size < 1 || d % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("size must divide ", d));
  }
  return std::vector<TensorType>{F32({size})};
}

// y_l = sum over rows r and j in group l of a_rj b_rj, so
//   dL/da_rj = dL/dy_l(j) b_rj,
//   dL/db_rj = dL/dy_l(j) a_rj, summed over what b_rj stands for.
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
    d_inputs[1] = type == b.type(left) ? b.Apply("mul", {left, dy}) : ReduceTo(b, type, left, dy);
  }
  return d_inputs;
}

absl::Status ReferenceReduce(const ReferenceArgs& args) {
  const int64_t n = args.shape(0).num_elements(), d = args.shape(0).last();
  const int64_t size = args.attrs.GetInt("size");
  for (int64_t e = 0; e < n; ++e) {
    double product = args.f(0)[static_cast<size_t>(e)];
    if (args.has(1)) {
      const BroadcastOperand b(args.inputs[1]->type, d);
      product *= args.f(1)[static_cast<size_t>(b.Index(e / d, e % d))];
    }
    args.out(0)[static_cast<size_t>(e % d * size / d)] += product;
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterMul(OpRegistry* registry) {
  OpDef mul;
  mul.name = "mul";
  mul.min_inputs = mul.max_inputs = 2;
  mul.may_alias = {{0, 0}};  // not b
  mul.infer = InferMul;
  mul.vjp = VjpMul;
  mul.make_kernel = ProgramKernelOf("mul");
  mul.reference = ReferenceMul;
  mul.token_wise = InputsWithRows;
  registry->Add(std::move(mul));

  OpDef reduce;
  reduce.name = "mul_reduce";
  reduce.min_inputs = 1;
  reduce.max_inputs = 2;
  reduce.infer = InferReduce;
  reduce.vjp = VjpReduce;
  reduce.make_kernel = ProgramKernelOf("mul_reduce");
  reduce.reference = ReferenceReduce;
  registry->Add(std::move(reduce));
}

}  // namespace plumb
