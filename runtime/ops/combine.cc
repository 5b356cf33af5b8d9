// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> InferCombine(const OpTypes& types) {
  for (size_t i = 0; i < types.inputs.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, absl::StrCat("term ", i)));
    PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "term 0", i, absl::StrCat("term ", i)));
  }
  const size_t coefs = types.attrs.GetDoubles("coefs").size();
  if (coefs != types.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(types.inputs.size(), " terms need as many coefficients, not ", coefs));
  }
  return std::vector<TensorType>{types.in(0)};
}

// y = sum_i c_i x_i + constant, so
//   dL/dx_i = c_i dL/dy.
std::vector<ValueId> VjpCombine(GraphBuilder& b, const Node& node,
                                absl::Span<const ValueId> d_outputs,
                                const std::vector<bool>& wanted) {
  const std::vector<double>& coefs = node.attrs.GetDoubles("coefs");
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  for (size_t i = 0; i < d_inputs.size(); ++i) {
    if (!wanted[i]) continue;
    d_inputs[i] =
        coefs[i] == 1
            ? d_outputs[0]
            : b.Apply("combine", {d_outputs[0]},
                      Attrs({{"coefs", std::vector<double>{coefs[i]}}, {"constant", 0.0}}));
  }
  return d_inputs;
}

absl::Status ReferenceCombine(const ReferenceArgs& args) {
  const std::vector<double>& coefs = args.attrs.GetDoubles("coefs");
  for (size_t e = 0; e < args.out(0).size(); ++e) {
    double y = args.attrs.GetDouble("constant", 0);
    for (size_t i = 0; i < coefs.size(); ++i) y += coefs[i] * args.f(i)[e];
    args.out(0)[e] = y;
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterCombine(OpRegistry* registry) {
  OpDef op;
  op.name = "combine";
  op.min_inputs = 1;
  op.max_inputs = OpDef::kVariadic;
  op.may_alias = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  op.infer = InferCombine;
  op.vjp = VjpCombine;
  op.make_kernel = ProgramKernelOf("combine");
  op.reference = ReferenceCombine;
  op.token_wise = [](const OpTypes& types) {
    std::vector<size_t> terms(types.inputs.size());
    std::iota(terms.begin(), terms.end(), 0);
    return terms;
  };
  registry->Add(std::move(op));
}

}  // namespace plumb
