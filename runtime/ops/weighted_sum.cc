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

// weighted_sum

absl::StatusOr<std::vector<TensorType>> InferWeightedSum(const OpTypes& types) {
  const size_t coefs = types.attrs.GetDoubles("coefs").size();
  if (coefs == 0 || (types.inputs.size() != 2 * coefs && types.inputs.size() + 1 != 2 * coefs)) {
    return absl::InvalidArgumentError(
        absl::StrCat(types.inputs.size(), " operands are no ", coefs, " pairs, one a coefficient"));
  }
  for (size_t i = 0; i < types.inputs.size(); i += 2) {
    if (!types.has(i)) {
      return absl::InvalidArgumentError("only the second factor of a term may be absent");
    }
  }
  PLUMB_ASSIGN_OR_RETURN(TensorType type, BroadcastType(types.inputs));
  return std::vector<TensorType>{std::move(type)};
}

ValueId Scaled(GraphBuilder& b, ValueId x, double coef) {
  if (coef == 1) return x;
  return b.Apply("combine", {x}, Attrs({{"coefs", std::vector<double>{coef}}, {"constant", 0.0}}));
}

// y = sum_i c_i a_i b_i + constant, so
//   dL/da_i = c_i dL/dy b_i, summed over what each element of a_i stands for, and the same for b_i.
std::vector<ValueId> VjpWeightedSum(GraphBuilder& b, const Node& node,
                                    absl::Span<const ValueId> d_outputs,
                                    const std::vector<bool>& wanted) {
  const std::vector<double> coefs = node.attrs.GetDoubles("coefs");
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!wanted[i]) continue;
    const size_t other = i ^ 1;
    const ValueId factor = other < node.inputs.size() ? node.inputs[other] : kNoValue;
    const TensorType type = b.type(node.inputs[i]);
    d_inputs[i] = Scaled(b, ReduceTo(b, type, d_outputs[0], factor), coefs[i / 2]);
  }
  return d_inputs;
}

absl::Status ReferenceWeightedSum(const ReferenceArgs& args) {
  const std::vector<double>& coefs = args.attrs.GetDoubles("coefs");
  const Shape& out = args.outputs[0]->type.shape;
  const int64_t d = out.last();
  for (int64_t e = 0; e < out.num_elements(); ++e) {
    double y = args.attrs.GetDouble("constant", 0);
    for (size_t i = 0; i < coefs.size(); ++i) {
      double term = coefs[i];
      for (size_t k = 2 * i; k < 2 * i + 2; ++k) {
        if (!args.has(k)) continue;
        const BroadcastOperand operand(args.inputs[k]->type, d);
        term *= args.f(k)[static_cast<size_t>(operand.Index(e / d, e % d))];
      }
      y += term;
    }
    args.out(0)[static_cast<size_t>(e)] = y;
  }
  return absl::OkStatus();
}

// expand

absl::StatusOr<std::vector<TensorType>> InferExpand(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "like"));
  TensorType target = types.in(1);
  std::vector<int64_t> dims(target.shape.dims().begin(), target.shape.dims().end());
  if (types.attrs.Has("width")) dims.back() = types.attrs.GetInt("width");
  target.shape = Shape(dims);
  PLUMB_ASSIGN_OR_RETURN(const TensorType type, BroadcastType({&types.in(0), &target}));
  if (type == target) return std::vector<TensorType>{type};
  return absl::InvalidArgumentError("x must not be wider than the result");
}

// y_rj = x_r,l(j), so dL/dx is the sum of dL/dy over what each element stands for.
std::vector<ValueId> VjpExpand(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const TensorType type = b.type(node.inputs[0]);
  return {wanted[0] ? ReduceTo(b, type, d_outputs[0], kNoValue) : kNoValue, kNoValue};
}

absl::Status ReferenceExpand(const ReferenceArgs& args) {
  const Shape& out = args.outputs[0]->type.shape;
  const int64_t d = out.last();
  const BroadcastOperand operand(args.inputs[0]->type, d);
  for (int64_t e = 0; e < out.num_elements(); ++e) {
    args.out(0)[static_cast<size_t>(e)] =
        args.f(0)[static_cast<size_t>(operand.Index(e / d, e % d))];
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterWeightedSum(OpRegistry* registry) {
  OpDef sum;
  sum.name = "weighted_sum";
  sum.min_inputs = 1;
  sum.max_inputs = OpDef::kVariadic;
  sum.infer = InferWeightedSum;
  sum.vjp = VjpWeightedSum;
  sum.make_kernel = ProgramKernelOf("weighted_sum");
  sum.reference = ReferenceWeightedSum;
  sum.token_wise = InputsWithRows;
  registry->Add(std::move(sum));

  OpDef expand;
  expand.name = "expand";
  expand.min_inputs = expand.max_inputs = 2;
  expand.infer = InferExpand;
  expand.vjp = VjpExpand;
  expand.make_kernel = ProgramKernelOf("expand");
  expand.reference = ReferenceExpand;
  expand.token_wise = InputsWithRows;
  registry->Add(std::move(expand));
}

}  // namespace plumb
