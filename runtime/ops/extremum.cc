// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/elementwise_kernel.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/extremum.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_EXTREMUM_TYPES
#define PLUMB_EXTREMUM_TYPES
namespace plumb {
namespace {

struct ExtremumFns {
  ElementwiseFn value;  // of a, b
  ElementwiseFn grad;   // da, db of a, b, dy
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

template <bool kMax>
HWY_INLINE hn::Mask<D> Wins(V a, V b) {
  return kMax ? hn::Gt(a, b) : hn::Lt(a, b);
}

template <class T, bool kMax>
void Apply(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  const D d;
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  T* y = static_cast<T*>(out[0]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    const V x = io.Load(d, a + i), z = io.Load(d, b + i);
    io.Store(hn::IfThenElse(Wins<kMax>(z, x), z, x), d, y + i);
  });
}

template <class T, bool kMax>
void ApplyGrad(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  const D d;
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  const T* dy = static_cast<const T*>(in[2]);
  T* da = static_cast<T*>(out[0]);
  T* db = static_cast<T*>(out[1]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    const V x = io.Load(d, a + i), z = io.Load(d, b + i), g = io.Load(d, dy + i);
    const V half = hn::Mul(g, hn::Set(d, 0.5f));
    const auto left = Wins<kMax>(x, z), right = Wins<kMax>(z, x);
    io.Store(hn::IfThenElse(left, g, hn::IfThenElse(right, hn::Zero(d), half)), d, da + i);
    io.Store(hn::IfThenElse(right, g, hn::IfThenElse(left, hn::Zero(d), half)), d, db + i);
  });
}

template <bool kMax>
ExtremumFns Fns(DType dtype) {
  if (dtype == DType::kBF16) return {&Apply<uint16_t, kMax>, &ApplyGrad<uint16_t, kMax>};
  return {&Apply<float, kMax>, &ApplyGrad<float, kMax>};
}

ExtremumFns Select(DType dtype, bool max) { return max ? Fns<true>(dtype) : Fns<false>(dtype); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

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

template <bool kGrad>
absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  const ExtremumFns fns = HWY_DYNAMIC_DISPATCH(Select)(types.in(0).dtype, IsMax(types.attrs));
  return std::make_unique<ElementwiseKernel>(types.in(0).num_elements(), kGrad ? 2 : 1,
                                             kGrad ? fns.grad : fns.value);
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
  op.make_kernel = MakeKernel<false>;
  op.reference = ReferenceExtremum;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0, 1}; };
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "extremum_grad";
  grad.min_inputs = grad.max_inputs = 3;
  grad.infer = InferGrad;
  grad.make_kernel = MakeKernel<true>;
  grad.reference = ReferenceGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
#endif  // HWY_ONCE
