// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/map_kind.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// map

absl::StatusOr<std::vector<TensorType>> InferMap(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(ParseMapKind(types.attrs.GetString("kind")).status());
  return std::vector<TensorType>{types.in(0)};
}

// y = f(x), so
//   dL/dx = f'(x) dL/dy, which is 0 for a comparison.
std::vector<ValueId> VjpMap(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                            const std::vector<bool>&) {
  const absl::StatusOr<MapKind> kind = ParseMapKind(node.attrs.GetString("kind"));
  if (kind.ok() && IsComparison(*kind)) return {kNoValue};
  return {b.Apply("map_grad", {node.inputs[0], d_outputs[0]}, node.attrs)};
}

absl::Status ReferenceMap(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const MapKind kind, ParseMapKind(args.attrs.GetString("kind")));
  const double c = args.attrs.GetDouble("number", 0);
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    args.out(0)[i] = ReferenceMapValue(kind, args.f(0)[i], c);
  }
  return absl::OkStatus();
}

// map_grad

absl::StatusOr<std::vector<TensorType>> InferMapGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "dy"));
  PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "x", 1, "dy"));
  PLUMB_RETURN_IF_ERROR(ParseMapKind(types.attrs.GetString("kind")).status());
  return std::vector<TensorType>{types.in(0)};
}

absl::Status ReferenceMapGrad(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const MapKind kind, ParseMapKind(args.attrs.GetString("kind")));
  const double c = args.attrs.GetDouble("number", 0);
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    args.out(0)[i] = args.f(1)[i] * ReferenceMapSlope(kind, args.f(0)[i], c);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterMap(OpRegistry* registry) {
  OpDef map;
  map.name = "map";
  map.min_inputs = map.max_inputs = 1;
  map.may_alias = {{0, 0}};
  map.infer = InferMap;
  map.vjp = VjpMap;
  map.make_kernel = ProgramKernelOf("map");
  map.reference = ReferenceMap;
  map.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  registry->Add(std::move(map));

  OpDef grad;
  grad.name = "map_grad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.may_alias = {{0, 0}, {0, 1}};
  grad.infer = InferMapGrad;
  grad.make_kernel = ProgramKernelOf("map_grad");
  grad.reference = ReferenceMapGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
