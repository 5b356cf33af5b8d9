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

// Three ops are sums of products, y = sum_i c_i a_i b_i + constant:
enum class Sum {
  kCombine,   // combine(a1, .., an): no b; all operands have one type
  kMul,       // mul(a, b): one term
  kWeighted,  // weighted_sum(a1, (b1), .., an, (bn)): operands are broadcast
};

// Returns the operand that the operand at i is multiplied by; kNoValue if there is none.
template <Sum kSum>
ValueId GetFactor(const Node& node, size_t i) {
  if (kSum == Sum::kCombine || (i ^ 1) >= node.inputs.size()) return kNoValue;
  return node.inputs[i ^ 1];
}

template <Sum kSum>
std::vector<double> GetCoefs(const Attrs& attrs) {
  if (kSum == Sum::kMul) return {1};
  return attrs.GetDoubles("coefs");
}

absl::Status CheckCount(const OpTypes& types, bool pairs) {
  const size_t coefs = types.attrs.GetDoubles("coefs").size(), n = types.inputs.size();
  if (!pairs && coefs != n) {
    return absl::InvalidArgumentError(
        absl::StrCat(n, " terms need as many coefficients, not ", coefs));
  }
  if (pairs && (coefs == 0 || (n != 2 * coefs && n + 1 != 2 * coefs))) {
    return absl::InvalidArgumentError(
        absl::StrCat(n, " operands do not make ", coefs, " pairs, one for each coefficient"));
  }
  return absl::OkStatus();
}

// Returns true if input 1 is an f32 vector, not wider than input 0, which may be a bf16 vector
// then.
bool IsScaledVector(const OpTypes& types) {
  const TensorType& b = types.in(1);
  return b.dtype == DType::kF32 && b.shape.rank() == 1 &&
         types.in(0).shape.last() % b.shape[0] == 0;
}

template <Sum kSum>
absl::StatusOr<std::vector<TensorType>> InferSum(const OpTypes& types) {
  if (kSum != Sum::kMul) PLUMB_RETURN_IF_ERROR(CheckCount(types, kSum == Sum::kWeighted));
  for (size_t i = 0; i < types.inputs.size(); ++i) {
    if (kSum == Sum::kWeighted && i % 2 == 1 && !types.has(i)) continue;
    const std::string name = absl::StrCat("operand ", i);
    PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, name));
    if (kSum == Sum::kCombine) {
      PLUMB_RETURN_IF_ERROR(CheckMatching(types, 0, "operand 0", i, name));
    }
  }
  const bool alike = kSum == Sum::kMul && (types.in(0) == types.in(1) || IsScaledVector(types));
  if (kSum == Sum::kCombine || alike) return std::vector<TensorType>{types.in(0)};
  PLUMB_ASSIGN_OR_RETURN(TensorType type, BroadcastType(types.inputs));
  return std::vector<TensorType>{std::move(type)};
}

ValueId Scaled(GraphBuilder& b, ValueId x, double coef) {
  if (coef == 1) return x;
  return b.Apply("combine", {x}, Attrs({{"coefs", std::vector<double>{coef}}, {"constant", 0.0}}));
}

// dL/da_i = c_i dL/dy b_i, summed over the elements that a_i is broadcast to, and the same for b_i.
template <Sum kSum>
std::vector<ValueId> VjpSum(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                            const std::vector<bool>& wanted) {
  const std::vector<double> coefs = GetCoefs<kSum>(node.attrs);
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!wanted[i]) continue;
    const TensorType type = b.type(node.inputs[i]);
    const ValueId product = ReduceTo(b, type, d_outputs[0], GetFactor<kSum>(node, i));
    d_inputs[i] = Scaled(b, product, coefs[kSum == Sum::kCombine ? i : i / 2]);
  }
  return d_inputs;
}

template <Sum kSum>
absl::Status ReferenceSum(const ReferenceArgs& args) {
  const std::vector<double> coefs = GetCoefs<kSum>(args.attrs);
  const Shape& out = args.outputs[0]->type.shape;
  const int64_t d = out.last();
  const size_t stride = kSum == Sum::kCombine ? 1 : 2;  // operands per term
  for (int64_t e = 0; e < out.num_elements(); ++e) {
    double y = args.attrs.GetDouble("constant", 0);
    for (size_t i = 0; i < coefs.size(); ++i) {
      double term = coefs[i];
      for (size_t k = stride * i; k < stride * (i + 1); ++k) {
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

// y_rj = x_r,l(j), so dL/dx is the sum of dL/dy over the elements that x is broadcast to.
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

template <Sum kSum>
OpDef SumOp(const char* name, int min_inputs, int max_inputs) {
  OpDef op;
  op.name = name;
  op.min_inputs = min_inputs;
  op.max_inputs = max_inputs;
  op.infer = InferSum<kSum>;
  op.vjp = VjpSum<kSum>;
  op.make_kernel = ProgramKernelFactory(name);
  op.reference = ReferenceSum<kSum>;
  op.token_wise = InputsWithRows;
  return op;
}

}  // namespace

void RegisterWeightedSum(OpRegistry* registry) {
  OpDef combine = SumOp<Sum::kCombine>("combine", 1, OpDef::kVariadic);
  combine.may_alias = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  registry->Add(std::move(combine));
  OpDef mul = SumOp<Sum::kMul>("mul", 2, 2);
  mul.may_alias = {{0, 0}};
  registry->Add(std::move(mul));
  registry->Add(SumOp<Sum::kWeighted>("weighted_sum", 1, OpDef::kVariadic));

  OpDef expand;
  expand.name = "expand";
  expand.min_inputs = expand.max_inputs = 2;
  expand.infer = InferExpand;
  expand.vjp = VjpExpand;
  expand.make_kernel = ProgramKernelFactory("expand");
  expand.reference = ReferenceExpand;
  expand.token_wise = InputsWithRows;
  registry->Add(std::move(expand));
}

}  // namespace plumb
