// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/simd/activation_kind.h"
#include "runtime/kernels/simd/element_tasks.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/gated.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/activation_math-inl.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_GATED_TYPES
#define PLUMB_GATED_TYPES
namespace plumb {
namespace {

// Elements [begin, end) of operands that are all f32 or all bf16, `in` and `out` as the op's. A
// result may be any of the inputs: each vector is read before it is written.
using ElementwiseFn = void (*)(const void* const* in, void* const* out, int64_t begin, int64_t end);

struct GatedFns {
  ElementwiseFn value;  // y of gate, up
  ElementwiseFn grad;   // dgate, dup of gate, up, dy
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
HWY_INLINE V Value(V gate, V up) {
  V value, derivative;
  F::Both(D(), gate, &value, &derivative);
  return hn::Mul(value, up);
}

template <class T, class F>
void Apply(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  const D d;
  const T* gate = static_cast<const T*>(in[0]);
  const T* up = static_cast<const T*>(in[1]);
  T* y = static_cast<T*>(out[0]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(Value<F>(io.Load(d, gate + i), io.Load(d, up + i)), d, y + i);
  });
}

template <class T, class F>
void ApplyGrad(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  const D d;
  const T* gate = static_cast<const T*>(in[0]);
  const T* up = static_cast<const T*>(in[1]);
  const T* dy = static_cast<const T*>(in[2]);
  T* dgate = static_cast<T*>(out[0]);
  T* dup = static_cast<T*>(out[1]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    const V g = io.Load(d, dy + i), u = io.Load(d, up + i);
    V value, derivative;
    F::Both(d, io.Load(d, gate + i), &value, &derivative);
    io.Store(hn::Mul(hn::Mul(g, u), derivative), d, dgate + i);
    io.Store(hn::Mul(g, value), d, dup + i);
  });
}

template <class F>
GatedFns Fns(DType dtype) {
  if (dtype == DType::kBF16) return {&Apply<uint16_t, F>, &ApplyGrad<uint16_t, F>};
  return {&Apply<float, F>, &ApplyGrad<float, F>};
}

GatedFns Select(DType dtype, ActivationKind kind) {
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

// A kernel whose element i is a function of the elements i of its inputs, and of nothing else.
class ElementwiseKernel : public Kernel {
 public:
  // `cost`: scalar operations an element, roughly.
  ElementwiseKernel(int64_t elements, int64_t cost, ElementwiseFn fn)
      : tasks_(elements, cost), fn_(fn) {}

  absl::Status Run(const KernelArgs& args) const override {
    tasks_.Run(args.threads,
               [&](int64_t begin, int64_t end) { fn_(args.in, args.out, begin, end); });
    return absl::OkStatus();
  }

 private:
  ElementTasks tasks_;
  ElementwiseFn fn_;
};

constexpr int64_t kCost = 16;  // scalar operations an element, roughly

absl::Status CheckOperands(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "gate"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "up"));
  PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "gate", 1, "up"));
  return ParseActivationKind(types.attrs.GetString("kind")).status();
}

// gated

absl::StatusOr<std::vector<TensorType>> InferGated(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckOperands(types));
  return std::vector<TensorType>{types.in(1)};
}

// y = f(gate) up, so
//   dL/dgate = f'(gate) up dL/dy,
//   dL/dup   = f(gate) dL/dy.
std::vector<ValueId> VjpGated(GraphBuilder& b, const Node& node,
                              absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  std::vector<ValueId> d_inputs =
      b.ApplyAll("gated_grad", {node.inputs[0], node.inputs[1], d_outputs[0]}, node.attrs);
  d_inputs.resize(2, kNoValue);
  return d_inputs;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeGatedKernel(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(types.attrs.GetString("kind")));
  return std::make_unique<ElementwiseKernel>(
      types.in(0).num_elements(), kCost,
      HWY_DYNAMIC_DISPATCH(Select)(types.in(0).dtype, kind).value);
}

absl::Status ReferenceGated(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(args.attrs.GetString("kind")));
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    args.out(0)[i] = ReferenceActivation(kind, args.f(0)[i]) * args.f(1)[i];
  }
  return absl::OkStatus();
}

// gated_grad

absl::StatusOr<std::vector<TensorType>> InferGatedGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckOperands(types));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 2, "dy"));
  PLUMB_RETURN_IF_ERROR(CheckAlike(types, 1, "up", 2, "dy"));
  return std::vector<TensorType>{types.in(0), types.in(1)};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeGatedGradKernel(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(types.attrs.GetString("kind")));
  return std::make_unique<ElementwiseKernel>(
      types.in(0).num_elements(), kCost,
      HWY_DYNAMIC_DISPATCH(Select)(types.in(0).dtype, kind).grad);
}

absl::Status ReferenceGatedGrad(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const ActivationKind kind,
                         ParseActivationKind(args.attrs.GetString("kind")));
  const std::vector<double>&gate = args.f(0), &up = args.f(1), &dy = args.f(2);
  for (size_t i = 0; i < dy.size(); ++i) {
    args.out(0)[i] = dy[i] * up[i] * ReferenceActivationDerivative(kind, gate[i]);
    args.out(1)[i] = dy[i] * ReferenceActivation(kind, gate[i]);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterGated(OpRegistry* registry) {
  OpDef gated;
  gated.name = "gated";
  gated.min_inputs = gated.max_inputs = 2;
  gated.may_alias = {{0, 0}, {0, 1}};
  gated.infer = InferGated;
  gated.vjp = VjpGated;
  gated.make_kernel = MakeGatedKernel;
  gated.reference = ReferenceGated;
  gated.token_wise = [](const OpTypes&) { return std::vector<size_t>{0, 1}; };
  registry->Add(std::move(gated));

  OpDef grad;
  grad.name = "gated_grad";
  grad.min_inputs = grad.max_inputs = 3;
  grad.may_alias = {{0, 0}, {1, 1}, {0, 2}};
  grad.infer = InferGatedGrad;
  grad.make_kernel = MakeGatedGradKernel;
  grad.reference = ReferenceGatedGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
#endif  // HWY_ONCE
