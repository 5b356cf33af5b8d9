// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

bool IsMax(const Attrs& attrs) { return attrs.GetBool("max", true); }

absl::Status CheckOperands(const OpTypes& types, std::initializer_list<const char*> names) {
  size_t i = 0;
  for (const char* name : names) {
    PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, name));
    PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "a", i++, name));
  }
  return absl::OkStatus();
}

// extremum

absl::StatusOr<std::vector<TensorType>> InferExtremum(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckOperands(types, {"a", "b"}));
  return std::vector<TensorType>{types.in(0)};
}

// y = max(a, b), so dL/da = dL/dy where a > b, half of it where they are equal, else 0.
std::vector<ValueId> VjpExtremum(GraphBuilder& b, const Node& node,
                                 absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  return b.ApplyAll("extremum_grad", {node.inputs[0], node.inputs[1], d_outputs[0]}, node.attrs);
}

absl::Status ReferenceExtremum(const ReferenceArgs& args) {
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    const double a = args.f(0)[i], b = args.f(1)[i];
    args.out(0)[i] = IsMax(args.attrs) ? std::max(a, b) : std::min(a, b);
  }
  return absl::OkStatus();
}

// extremum_grad

absl::StatusOr<std::vector<TensorType>> InferGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckOperands(types, {"a", "b", "dy"}));
  return std::vector<TensorType>{types.in(0), types.in(0)};
}

absl::Status ReferenceGrad(const ReferenceArgs& args) {
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    const double a = args.f(0)[i], b = args.f(1)[i], dy = args.f(2)[i];
    const double share = a == b ? 0.5 : (a > b) == IsMax(args.attrs) ? 1 : 0;
    args.out(0)[i] = share * dy;
    args.out(1)[i] = (1 - share) * dy;
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterExtremum(OpRegistry* registry) {
  OpDef op;
  op.name = "extremum";
  op.min_inputs = op.max_inputs = 2;
  op.may_alias = {{0, 0}, {0, 1}};
  op.infer = InferExtremum;
  op.vjp = VjpExtremum;
  op.make_kernel = ProgramKernelOf("extremum");
  op.reference = ReferenceExtremum;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0, 1}; };
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "extremum_grad";
  grad.min_inputs = grad.max_inputs = 3;
  grad.infer = InferGrad;
  grad.make_kernel = ProgramKernelOf("extremum_grad");
  grad.reference = ReferenceGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
