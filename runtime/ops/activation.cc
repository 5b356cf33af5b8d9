// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/simd/activation_kind.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// act

absl::StatusOr<std::vector<TensorType>> InferAct(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(ParseActivationKind(types.attrs.GetString("kind")).status());
  return std::vector<TensorType>{types.in(0)};
}

// y = f(x), so
//   dL/dx = f'(x) dL/dy.
std::vector<ValueId> VjpAct(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                            const std::vector<bool>&) {
  return {b.Apply("act_grad", {node.inputs[0], d_outputs[0]}, node.attrs)};
}

absl::Status ReferenceAct(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(args.attrs.GetString("kind")));
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    args.out(0)[i] = ReferenceActivation(kind, args.f(0)[i]);
  }
  return absl::OkStatus();
}

// act_grad

absl::StatusOr<std::vector<TensorType>> InferActGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "dy"));
  PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "x", 1, "dy"));
  PLUMB_RETURN_IF_ERROR(ParseActivationKind(types.attrs.GetString("kind")).status());
  return std::vector<TensorType>{types.in(0)};
}

absl::Status ReferenceActGrad(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(args.attrs.GetString("kind")));
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    args.out(0)[i] = args.f(1)[i] * ReferenceActivationDerivative(kind, args.f(0)[i]);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterActivation(OpRegistry* registry) {
  OpDef act;
  act.name = "act";
  act.min_inputs = act.max_inputs = 1;
  act.may_alias = {{0, 0}};
  act.infer = InferAct;
  act.vjp = VjpAct;
  act.make_kernel = ProgramKernelOf("act");
  act.reference = ReferenceAct;
  act.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  registry->Add(std::move(act));

  OpDef grad;
  grad.name = "act_grad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.may_alias = {{0, 0}, {0, 1}};
  grad.infer = InferActGrad;
  grad.make_kernel = ProgramKernelOf("act_grad");
  grad.reference = ReferenceActGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
