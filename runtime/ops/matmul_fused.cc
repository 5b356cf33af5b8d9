// SPDX-License-Identifier: Apache-2.0
// Forms of matmul with an epilogue, which runs while sums are in the cache, or with one operand
// shared by several products. Passes create them after differentiation, so they have no gradients.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ops/flops.h"
#include "runtime/ops/matmul_shape.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

TensorType ResultType(const OpTypes& types, size_t a, size_t b) {
  const Shape& shape = types.in(a).shape;
  const ProductShape p(shape, types.in(b).shape, types.attrs);
  return {types.in(a).dtype, p.Result(shape)};
}

// matmul_act

absl::StatusOr<std::vector<TensorType>> InferMatmulAct(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckProduct(types, 0, 1));
  const TensorType y = ResultType(types, 0, 1);
  PLUMB_RETURN_IF_ERROR(CheckBias(types, 2, y.shape.last()));
  PLUMB_RETURN_IF_ERROR(ParseActivationKind(types.attrs.GetString("kind")).status());
  return std::vector<TensorType>(types.attrs.GetBool("keep", false) ? 2 : 1, y);
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeActKernel(const OpTypes& types,
                                                      const GemmPolicy& policy) {
  GemmSpec spec = OneProduct(types, /*may_have_bias=*/true);
  spec.epilogue = Epilogue::kActivation;
  PLUMB_ASSIGN_OR_RETURN(spec.activation, ParseActivationKind(types.attrs.GetString("kind")));
  if (types.attrs.GetBool("keep", false)) spec.results[0].derivative = 1;
  return MakeMatmulKernel(std::move(spec), policy);
}

absl::Status ReferenceMatmulAct(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(args.attrs.GetString("kind")));
  std::vector<double>& y = args.out(0);
  y.assign(y.size(), 0);
  AddReferenceProduct(args, 0, 1, &y);
  AddReferenceBias(args, 2, &y);
  if (args.outputs.size() > 1) {
    for (size_t e = 0; e < y.size(); ++e) {
      args.out(1)[e] = ReferenceActivationDerivative(kind, y[e]);
    }
  }
  for (double& x : y) x = ReferenceActivation(kind, x);
  return absl::OkStatus();
}

// matmul_act_grad

absl::StatusOr<std::vector<TensorType>> InferMatmulActGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckProduct(types, 0, 1));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 2, "derivative"));
  const TensorType y = ResultType(types, 0, 1);
  if (types.in(2) != y) {
    return absl::InvalidArgumentError(absl::StrCat("derivative must be ", y.ToString()));
  }
  return std::vector<TensorType>{y};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeActGradKernel(const OpTypes& types,
                                                          const GemmPolicy& policy) {
  GemmSpec spec = OneProduct(types, /*may_have_bias=*/false);
  spec.epilogue = Epilogue::kMul;
  spec.results[0].operand = 2;
  return MakeMatmulKernel(std::move(spec), policy);
}

absl::Status ReferenceMatmulActGrad(const ReferenceArgs& args) {
  std::vector<double>& dx = args.out(0);
  dx.assign(dx.size(), 0);
  AddReferenceProduct(args, 0, 1, &dx);
  for (size_t e = 0; e < dx.size(); ++e) dx[e] *= args.f(2)[e];
  return absl::OkStatus();
}

// matmul_add

constexpr size_t kAddend = 3;

absl::StatusOr<std::vector<TensorType>> InferMatmulFusedAdd(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckProduct(types, 0, 1));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, kAddend, "addend"));
  const TensorType y = ResultType(types, 0, 1);
  PLUMB_RETURN_IF_ERROR(CheckBias(types, 2, y.shape.last()));
  const TensorType& addend = types.in(kAddend);
  if (addend != y && addend != F32(y.shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("addend must be like the product, ", y.ToString(), ", or f32"));
  }
  return std::vector<TensorType>{addend};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeMatmulFusedAddKernel(const OpTypes& types,
                                                                 const GemmPolicy& policy) {
  GemmSpec spec = OneProduct(types, /*may_have_bias=*/true);
  spec.epilogue = Epilogue::kAdd;
  spec.results[0].operand = kAddend;
  return MakeMatmulKernel(std::move(spec), policy);
}

absl::Status ReferenceMatmulFusedAdd(const ReferenceArgs& args) {
  args.out(0) = args.f(kAddend);
  AddReferenceProduct(args, 0, 1, &args.out(0));
  AddReferenceBias(args, 2, &args.out(0));
  return absl::OkStatus();
}

// matmul_shared

// Returns attribute `count`. In addition to the one operand that is always present, there must be
// `min` * count to `max` * count inputs.
absl::StatusOr<size_t> CheckCount(const OpTypes& types, int64_t min, int64_t max) {
  const int64_t count = types.attrs.GetInt("count");
  const int64_t inputs = static_cast<int64_t>(types.inputs.size());
  if (count < 1 || inputs < 1 + count * min || inputs > 1 + count * max) {
    return absl::InvalidArgumentError(
        absl::StrCat("count ", count, " does not fit ", inputs, " inputs"));
  }
  if (types.attrs.GetBool("transpose_a", false)) {
    return absl::InvalidArgumentError("transpose_a is not supported");
  }
  return static_cast<size_t>(count);
}

absl::StatusOr<std::vector<TensorType>> InferShared(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const size_t count, CheckCount(types, 1, 2));
  std::vector<TensorType> outputs;
  for (size_t i = 1; i <= count; ++i) {
    PLUMB_RETURN_IF_ERROR(CheckProduct(types, 0, i));
    outputs.push_back(ResultType(types, 0, i));
    PLUMB_RETURN_IF_ERROR(CheckBias(types, count + i, outputs.back().shape.last()));
  }
  return outputs;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeSharedKernel(const OpTypes& types,
                                                         const GemmPolicy& policy) {
  const size_t count = static_cast<size_t>(types.attrs.GetInt("count"));
  GemmSpec spec = MakeSpec(types, 0, 1);
  for (size_t i = 1; i <= count; ++i) {
    GemmResult result;
    result.n = types.out(i - 1).shape.last();
    result.terms = {MakeTerm(types, 0, i)};
    if (types.has(count + i)) result.bias = static_cast<int>(count + i);
    result.out = static_cast<int>(i - 1);
    spec.results.push_back(std::move(result));
  }
  return MakeMatmulKernel(std::move(spec), policy);
}

absl::Status ReferenceShared(const ReferenceArgs& args) {
  const size_t count = static_cast<size_t>(args.attrs.GetInt("count"));
  for (size_t i = 1; i <= count; ++i) {
    std::vector<double>& y = args.out(i - 1);
    y.assign(y.size(), 0);
    AddReferenceProduct(args, 0, i, &y);
    AddReferenceBias(args, count + i, &y);
  }
  return absl::OkStatus();
}

// matmul_sum: input 0 is the addend, so that its index does not depend on the count.

absl::StatusOr<std::vector<TensorType>> InferSum(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const size_t count, CheckCount(types, 2, 2));
  for (size_t i = 0; i < count; ++i) {
    const size_t a = 1 + 2 * i, b = a + 1;
    PLUMB_RETURN_IF_ERROR(CheckProduct(types, a, b));
    if (ResultType(types, a, b) != ResultType(types, 1, 2)) {
      return absl::InvalidArgumentError(
          absl::StrCat("product ", i + 1, " is ", ResultType(types, a, b).ToString(),
                       ", the first ", ResultType(types, 1, 2).ToString()));
    }
  }
  const TensorType y = ResultType(types, 1, 2);
  if (types.has(0)) {
    PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "addend"));
    if (types.in(0) != y) {
      return absl::InvalidArgumentError(absl::StrCat("addend must be ", y.ToString()));
    }
  }
  return std::vector<TensorType>{y};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeSumKernel(const OpTypes& types,
                                                      const GemmPolicy& policy) {
  const size_t count = static_cast<size_t>(types.attrs.GetInt("count"));
  GemmSpec spec = MakeSpec(types, 1, 2);
  GemmResult result;
  result.n = types.out(0).shape.last();
  for (size_t i = 0; i < count; ++i) result.terms.push_back(MakeTerm(types, 1 + 2 * i, 2 + 2 * i));
  if (types.has(0)) {
    spec.epilogue = Epilogue::kAdd;
    result.operand = 0;
  }
  spec.results = {std::move(result)};
  return MakeMatmulKernel(std::move(spec), policy);
}

absl::Status ReferenceSum(const ReferenceArgs& args) {
  const size_t count = static_cast<size_t>(args.attrs.GetInt("count"));
  std::vector<double>& y = args.out(0);
  y.assign(y.size(), 0);
  if (args.has(0)) y = args.f(0);
  for (size_t i = 0; i < count; ++i) AddReferenceProduct(args, 1 + 2 * i, 2 + 2 * i, &y);
  return absl::OkStatus();
}

}  // namespace

void RegisterFusedMatmul(OpRegistry* registry, const GemmPolicy& policy) {
  OpDef act;
  act.name = "matmul_act";
  act.min_inputs = 2;
  act.max_inputs = 3;
  act.infer = InferMatmulAct;
  act.make_kernel = [policy](const OpTypes& types) { return MakeActKernel(types, policy); };
  act.reference = ReferenceMatmulAct;
  act.token_wise = LeftTokenWise;
  act.flops = MatmulFlops;
  registry->Add(std::move(act));

  OpDef grad;
  grad.name = "matmul_act_grad";
  grad.min_inputs = grad.max_inputs = 3;
  grad.may_alias = {{0, 2}};
  grad.infer = InferMatmulActGrad;
  grad.make_kernel = [policy](const OpTypes& types) { return MakeActGradKernel(types, policy); };
  grad.reference = ReferenceMatmulActGrad;
  grad.flops = MatmulFlops;
  registry->Add(std::move(grad));

  OpDef add;
  add.name = "matmul_add";
  add.min_inputs = 2;  // the bias may be absent; the shape rule requires the addend
  add.max_inputs = kAddend + 1;
  add.may_alias = {{0, static_cast<int>(kAddend)}};
  add.infer = InferMatmulFusedAdd;
  add.make_kernel = [policy](const OpTypes& types) {
    return MakeMatmulFusedAddKernel(types, policy);
  };
  add.reference = ReferenceMatmulFusedAdd;
  add.token_wise = [](const OpTypes& types) {
    std::vector<size_t> inputs = LeftTokenWise(types);
    if (!inputs.empty()) inputs.push_back(kAddend);
    return inputs;
  };
  add.flops = MatmulFlops;
  registry->Add(std::move(add));

  OpDef shared;
  shared.name = "matmul_shared";
  shared.min_inputs = 2;
  shared.max_inputs = OpDef::kVariadic;
  shared.infer = InferShared;
  shared.make_kernel = [policy](const OpTypes& types) { return MakeSharedKernel(types, policy); };
  shared.reference = ReferenceShared;
  shared.token_wise = LeftTokenWise;
  shared.flops = MatmulSharedFlops;
  registry->Add(std::move(shared));

  OpDef sum;
  sum.name = "matmul_sum";
  sum.min_inputs = 0;  // the addend may be absent; the shape rule requires the products
  sum.max_inputs = OpDef::kVariadic;
  sum.may_alias = {{0, 0}};
  sum.infer = InferSum;
  sum.make_kernel = [policy](const OpTypes& types) { return MakeSumKernel(types, policy); };
  sum.reference = ReferenceSum;
  sum.token_wise = [](const OpTypes& types) {
    std::vector<size_t> inputs;
    if (types.has(0)) inputs.push_back(0);
    for (size_t a = 1; a < types.inputs.size(); a += 2) inputs.push_back(a);
    return inputs;
  };
  sum.flops = MatmulSumFlops;
  registry->Add(std::move(sum));
}

}  // namespace plumb
