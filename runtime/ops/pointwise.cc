// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/simd/activation_kind.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/map_kind.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// Functions of one element of each operand; operands have the same type. Each struct defines two
// ops: the function, and its gradients with respect to all operands, which op "<name>_grad"
// computes from the operands and dy. The functions on elements are the references, in double.

ActivationKind GetActivation(const Attrs& attrs) {
  return ParseActivationKind(attrs.GetString("kind")).value();
}

// y = f(x)
struct Act {
  static constexpr const char* kOperands[] = {"x", "dy"};
  static absl::Status Check(const Attrs& attrs) {
    return ParseActivationKind(attrs.GetString("kind")).status();
  }
  static double Value(const Attrs& attrs, const double* x) {
    return ReferenceActivation(GetActivation(attrs), x[0]);
  }
  static void Gradient(const Attrs& attrs, const double* x, double dy, double* dx) {
    dx[0] = dy * ReferenceActivationDerivative(GetActivation(attrs), x[0]);
  }
};

// y = f(gate) up
struct Gated {
  static constexpr const char* kOperands[] = {"gate", "up", "dy"};
  static absl::Status Check(const Attrs& attrs) { return Act::Check(attrs); }
  static double Value(const Attrs& attrs, const double* x) { return Act::Value(attrs, x) * x[1]; }
  static void Gradient(const Attrs& attrs, const double* x, double dy, double* dx) {
    Act::Gradient(attrs, x, dy * x[1], dx);
    dx[1] = dy * Act::Value(attrs, x);
  }
};

// y = f(x) or f(x, number), see map_kind.h.
struct Map {
  static constexpr const char* kOperands[] = {"x", "dy"};
  static absl::Status Check(const Attrs& attrs) {
    return ParseMapKind(attrs.GetString("kind")).status();
  }
  static MapKind GetKind(const Attrs& attrs) {
    return ParseMapKind(attrs.GetString("kind")).value();
  }
  static double Value(const Attrs& attrs, const double* x) {
    return ReferenceMapValue(GetKind(attrs), x[0], attrs.GetDouble("number", 0));
  }
  static void Gradient(const Attrs& attrs, const double* x, double dy, double* dx) {
    dx[0] = dy * ReferenceMapSlope(GetKind(attrs), x[0], attrs.GetDouble("number", 0));
  }
};

// y = max(a, b) or min(a, b). If they are equal, each gets half of the gradient.
struct Extremum {
  static constexpr const char* kOperands[] = {"a", "b", "dy"};
  static bool IsMax(const Attrs& attrs) { return attrs.GetBool("max", true); }
  static absl::Status Check(const Attrs&) { return absl::OkStatus(); }
  static double Value(const Attrs& attrs, const double* x) {
    return IsMax(attrs) ? std::max(x[0], x[1]) : std::min(x[0], x[1]);
  }
  static void Gradient(const Attrs& attrs, const double* x, double dy, double* dx) {
    const double share = x[0] == x[1] ? 0.5 : (x[0] > x[1]) == IsMax(attrs) ? 1 : 0;
    dx[0] = share * dy;
    dx[1] = (1 - share) * dy;
  }
};

template <class F>
constexpr size_t kOperandsOf = std::size(F::kOperands) - 1;  // without dy

template <class F>
absl::Status CheckOperands(const OpTypes& types, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, F::kOperands[i]));
    PLUMB_RETURN_IF_ERROR(CheckMatching(types, 0, F::kOperands[0], i, F::kOperands[i]));
  }
  return F::Check(types.attrs);
}

template <class F>
absl::StatusOr<std::vector<TensorType>> InferValue(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckOperands<F>(types, kOperandsOf<F>));
  return std::vector<TensorType>{types.in(0)};
}

template <class F>
absl::StatusOr<std::vector<TensorType>> InferGradient(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckOperands<F>(types, kOperandsOf<F> + 1));
  return std::vector<TensorType>(kOperandsOf<F>, types.in(0));
}

std::vector<ValueId> VjpPointwise(GraphBuilder& b, const Node& node,
                                  absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  std::vector<ValueId> operands = node.inputs;
  operands.push_back(d_outputs[0]);
  std::vector<ValueId> d_inputs =
      b.ApplyAll(absl::StrCat(node.op->name, "_grad"), std::move(operands), node.attrs);
  d_inputs.resize(node.inputs.size(), kNoValue);
  return d_inputs;
}

// A comparison is constant almost everywhere.
std::vector<ValueId> VjpMap(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                            const std::vector<bool>& wanted) {
  if (IsPiecewiseConstant(Map::GetKind(node.attrs))) return {kNoValue};
  return VjpPointwise(b, node, d_outputs, wanted);
}

template <class F>
absl::Status ReferenceValue(const ReferenceArgs& args) {
  double x[kOperandsOf<F>];
  for (size_t e = 0; e < args.out(0).size(); ++e) {
    for (size_t i = 0; i < kOperandsOf<F>; ++i) x[i] = args.f(i)[e];
    args.out(0)[e] = F::Value(args.attrs, x);
  }
  return absl::OkStatus();
}

template <class F>
absl::Status ReferenceGradient(const ReferenceArgs& args) {
  double x[kOperandsOf<F>], dx[kOperandsOf<F>];
  for (size_t e = 0; e < args.out(0).size(); ++e) {
    for (size_t i = 0; i < kOperandsOf<F>; ++i) x[i] = args.f(i)[e];
    F::Gradient(args.attrs, x, args.f(kOperandsOf<F>)[e], dx);
    for (size_t i = 0; i < kOperandsOf<F>; ++i) args.out(i)[e] = dx[i];
  }
  return absl::OkStatus();
}

// Registers both ops. `gradient_aliases` is may_alias of the gradient.
template <class F>
void RegisterPair(OpRegistry* registry, const char* name, decltype(OpDef::vjp) vjp,
                  std::vector<std::pair<int, int>> gradient_aliases) {
  OpDef value;
  value.name = name;
  value.min_inputs = value.max_inputs = static_cast<int>(kOperandsOf<F>);
  for (int i = 0; i < value.max_inputs; ++i) value.may_alias.push_back({0, i});
  value.infer = InferValue<F>;
  value.vjp = vjp;
  value.make_kernel = ProgramKernelFactory(name);
  value.reference = ReferenceValue<F>;
  value.token_wise = InputsWithRows;
  OpDef gradient;
  gradient.name = absl::StrCat(name, "_grad");
  gradient.min_inputs = gradient.max_inputs = value.max_inputs + 1;
  gradient.may_alias = std::move(gradient_aliases);
  gradient.infer = InferGradient<F>;
  gradient.make_kernel = ProgramKernelFactory(gradient.name);
  gradient.reference = ReferenceGradient<F>;
  registry->Add(std::move(value));
  registry->Add(std::move(gradient));
}

}  // namespace

void RegisterPointwise(OpRegistry* registry) {
  RegisterPair<Act>(registry, "act", VjpPointwise, {{0, 0}, {0, 1}});
  RegisterPair<Gated>(registry, "gated", VjpPointwise, {{0, 0}, {1, 1}, {0, 2}});
  RegisterPair<Map>(registry, "map", VjpMap, {{0, 0}, {0, 1}});
  RegisterPair<Extremum>(registry, "extremum", VjpPointwise, {});
}

}  // namespace plumb
