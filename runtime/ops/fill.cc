// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> InferFill(const OpTypes& types) {
  std::vector<int64_t> dims;
  for (const double dim : types.attrs.GetDoubles("dims")) {
    if (!(dim >= 1) || dim > 1e15 || dim != std::floor(dim)) {
      return absl::InvalidArgumentError(absl::StrCat("dims must be positive integers, not ", dim));
    }
    dims.push_back(static_cast<int64_t>(dim));
  }
  return std::vector<TensorType>{
      {types.attrs.GetBool("bf16", false) ? DType::kBF16 : DType::kF32, Shape(dims)}};
}

// y does not depend on any input.
std::vector<ValueId> VjpFill(GraphBuilder&, const Node&, absl::Span<const ValueId>,
                             const std::vector<bool>&) {
  return {};
}

absl::Status ReferenceFill(const ReferenceArgs& args) {
  for (double& y : args.out(0)) y = args.attrs.GetDouble("value");
  return absl::OkStatus();
}

}  // namespace

void RegisterFill(OpRegistry* registry) {
  OpDef op;
  op.name = "fill";
  op.infer = InferFill;
  op.vjp = VjpFill;
  op.make_kernel = ProgramKernelFactory("fill");
  op.reference = ReferenceFill;
  registry->Add(std::move(op));
}

}  // namespace plumb
