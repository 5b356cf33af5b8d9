// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/simd/activation_kind.h"
#include "runtime/ops/elementwise_kernel.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/activation.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/activation_math-inl.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_ACTIVATION_TYPES
#define PLUMB_ACTIVATION_TYPES
namespace plumb {
namespace {

struct ActivationFns {
  ElementwiseFn value;  // of x
  ElementwiseFn grad;   // of x, dy
};

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <class F>
HWY_INLINE V Value(V x) {
  V value, derivative;
  F::Both(D(), x, &value, &derivative);
  return value;
}

template <class F>
HWY_INLINE V Derivative(V x) {
  V value, derivative;
  F::Both(D(), x, &value, &derivative);
  return derivative;
}

template <class T, class F>
void Apply(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  const D d;
  const T* x = static_cast<const T*>(in[0]);
  T* y = static_cast<T*>(out[0]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(Value<F>(io.Load(d, x + i)), d, y + i);
  });
}

template <class T, class F>
void ApplyGrad(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  const D d;
  const T* x = static_cast<const T*>(in[0]);
  const T* dy = static_cast<const T*>(in[1]);
  T* dx = static_cast<T*>(out[0]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(hn::Mul(io.Load(d, dy + i), Derivative<F>(io.Load(d, x + i))), d, dx + i);
  });
}

template <class F>
ActivationFns Fns(DType dtype) {
  if (dtype == DType::kBF16) return {&Apply<uint16_t, F>, &ApplyGrad<uint16_t, F>};
  return {&Apply<float, F>, &ApplyGrad<float, F>};
}

ActivationFns Select(DType dtype, ActivationKind kind) {
  return WithActivation(kind, [dtype](auto f) { return Fns<decltype(f)>(dtype); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

namespace {

constexpr int64_t kCost = 16;  // scalar operations an element, roughly

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

absl::StatusOr<std::unique_ptr<Kernel>> MakeActKernel(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(types.attrs.GetString("kind")));
  return std::make_unique<ElementwiseKernel>(
      types.in(0).num_elements(), kCost,
      HWY_DYNAMIC_DISPATCH(Select)(types.in(0).dtype, kind).value);
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

absl::StatusOr<std::unique_ptr<Kernel>> MakeActGradKernel(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(types.attrs.GetString("kind")));
  return std::make_unique<ElementwiseKernel>(
      types.in(0).num_elements(), kCost,
      HWY_DYNAMIC_DISPATCH(Select)(types.in(0).dtype, kind).grad);
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
  act.make_kernel = MakeActKernel;
  act.reference = ReferenceAct;
  act.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  registry->Add(std::move(act));

  OpDef grad;
  grad.name = "act_grad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.may_alias = {{0, 0}, {0, 1}};
  grad.infer = InferActGrad;
  grad.make_kernel = MakeActGradKernel;
  grad.reference = ReferenceActGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
#endif  // HWY_ONCE
