// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/flops.h"
#include "runtime/ops/matmul_shape.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> InferMatmul(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckProduct(types, 0, 1));
  const Shape& a = types.in(0).shape;
  const ProductShape p(a, types.in(1).shape, types.attrs);
  PLUMB_RETURN_IF_ERROR(CheckBias(types, 2, p.n));
  const bool f32_out = types.attrs.GetBool("f32_out", false);
  return std::vector<TensorType>{{f32_out ? DType::kF32 : types.in(0).dtype, p.Result(a)}};
}

// Y = A' B' + 1 c^T with A' = op(A), B' = op(B); with G = dL/dY,
//   dL/dA' = G B'^T,  dL/dB' = A'^T G,  dL/dc = the sum of G's rows,
// and dL/dA = dL/dA' or, when A' is A's transpose, its transpose B' G^T; likewise dL/dB.
std::vector<ValueId> VjpMatmul(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], right = node.inputs[1], dy = d_outputs[0];
  const bool ta = node.attrs.GetBool("transpose_a", false);
  const bool tb = node.attrs.GetBool("transpose_b", false);
  const auto product = [&b](ValueId x, bool tx, ValueId y, bool ty, ValueId like) {
    Attrs attrs;
    if (tx) attrs.Set("transpose_a", true);
    if (ty) attrs.Set("transpose_b", true);
    const TensorType type = GradientType(b.graph().value(like));
    if (b.type(x).dtype == DType::kBF16 && type.dtype == DType::kF32) attrs.Set("f32_out", true);
    const ValueId result = b.Apply("matmul", {x, y}, std::move(attrs));
    if (b.ok() && b.type(result) != type) {
      b.Fail(absl::UnimplementedError(
          absl::StrCat("matmul: the gradient of an operand ", b.type(like).ToString(),
                       " comes out as ", b.type(result).ToString(),
                       ": transposed operands must be matrices to be differentiated")));
    }
    return result;
  };
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    d_inputs[0] = ta ? product(right, tb, dy, true, left) : product(dy, false, right, !tb, left);
  }
  if (wanted[1]) {
    d_inputs[1] = tb ? product(dy, true, left, ta, right) : product(left, !ta, dy, false, right);
  }
  if (wanted.size() > 2 && wanted[2]) d_inputs[2] = b.Apply("mul_reduce", {dy});
  return d_inputs;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeMatmulKernel(const OpTypes& types,
                                                         const GemmPolicy& policy) {
  return MakeMatmulKernel(OneProduct(types, /*may_have_bias=*/true), policy);
}

absl::Status ReferenceMatmul(const ReferenceArgs& args) {
  std::vector<double>& y = args.out(0);
  y.assign(y.size(), 0);
  AddReferenceProduct(args, 0, 1, &y);
  AddReferenceBias(args, 2, &y);
  return absl::OkStatus();
}

}  // namespace

void RegisterMatmul(OpRegistry* registry, const GemmPolicy& policy) {
  OpDef op;
  op.name = "matmul";
  op.min_inputs = 2;
  op.max_inputs = 3;
  op.infer = InferMatmul;
  op.vjp = VjpMatmul;
  op.make_kernel = [policy](const OpTypes& types) { return MakeMatmulKernel(types, policy); };
  op.reference = ReferenceMatmul;
  op.token_wise = LeftTokenWise;
  op.flops = MatmulFlops;
  registry->Add(std::move(op));
}

}  // namespace plumb
