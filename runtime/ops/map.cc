// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/elementwise_kernel.h"
#include "runtime/ops/map_kind.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/map.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format off: after foreach_target.h, which includes this file once per target
#include "hwy/contrib/math/math-inl.h"
// clang-format on
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_MAP_TYPES
#define PLUMB_MAP_TYPES
namespace plumb {
namespace {

// Elements [begin, end), with a number c: y = f(x), or dx = f'(x) dy.
using MapFn = void (*)(const void* const* in, void* const* out, float c, int64_t begin,
                       int64_t end);
struct MapFns {
  MapFn value, grad;
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

HWY_INLINE V One() { return hn::Set(D(), 1.0f); }
HWY_INLINE V Where(hn::Mask<D> mask) { return hn::IfThenElseZero(mask, One()); }

// Each function f(x, c) and its derivative by x.
struct ExpFn {
  static HWY_INLINE V Value(V x, V) { return hn::Exp(D(), x); }
  static HWY_INLINE V Slope(V x, V) { return hn::Exp(D(), x); }
};
struct LogFn {
  static HWY_INLINE V Value(V x, V) { return hn::Log(D(), x); }
  static HWY_INLINE V Slope(V x, V) { return hn::Div(One(), x); }
};
struct SqrtFn {
  static HWY_INLINE V Value(V x, V) { return hn::Sqrt(x); }
  static HWY_INLINE V Slope(V x, V) { return hn::Div(hn::Set(D(), 0.5f), hn::Sqrt(x)); }
};
struct AbsFn {
  static HWY_INLINE V Value(V x, V) { return hn::Abs(x); }
  static HWY_INLINE V Slope(V x, V) {
    return hn::Sub(Where(hn::Gt(x, hn::Zero(D()))), Where(hn::Lt(x, hn::Zero(D()))));
  }
};
struct ReciprocalFn {
  static HWY_INLINE V Value(V x, V) { return hn::Div(One(), x); }
  static HWY_INLINE V Slope(V x, V) {
    const V y = hn::Div(One(), x);
    return hn::Neg(hn::Mul(y, y));
  }
};
// One by one: exponents are rare, and of any kind.
struct PowFn {
  static V Power(V x, float exponent) {
    HWY_ALIGN float elements[hn::MaxLanes(D())];
    hn::Store(x, D(), elements);
    for (float& element : elements) element = std::pow(element, exponent);
    return hn::Load(D(), elements);
  }
  static V Value(V x, V c) { return Power(x, hn::GetLane(c)); }
  static V Slope(V x, V c) { return hn::Mul(c, Power(x, hn::GetLane(c) - 1)); }
};
struct MaxFn {
  static HWY_INLINE V Value(V x, V c) { return hn::IfThenElse(hn::Lt(x, c), c, x); }
  static HWY_INLINE V Slope(V x, V c) { return Where(hn::Gt(x, c)); }
};
struct MinFn {
  static HWY_INLINE V Value(V x, V c) { return hn::IfThenElse(hn::Gt(x, c), c, x); }
  static HWY_INLINE V Slope(V x, V c) { return Where(hn::Lt(x, c)); }
};
struct Step {
  static HWY_INLINE V Slope(V, V) { return hn::Zero(D()); }
};
struct LessFn : Step {
  static HWY_INLINE V Value(V x, V c) { return Where(hn::Lt(x, c)); }
};
struct LessEqualFn : Step {
  static HWY_INLINE V Value(V x, V c) { return Where(hn::Le(x, c)); }
};
struct GreaterFn : Step {
  static HWY_INLINE V Value(V x, V c) { return Where(hn::Gt(x, c)); }
};
struct GreaterEqualFn : Step {
  static HWY_INLINE V Value(V x, V c) { return Where(hn::Ge(x, c)); }
};
struct EqualFn : Step {
  static HWY_INLINE V Value(V x, V c) { return Where(hn::Eq(x, c)); }
};
struct NotEqualFn : Step {
  static HWY_INLINE V Value(V x, V c) { return hn::Sub(One(), Where(hn::Eq(x, c))); }
};

template <class T, class F>
void Apply(const void* const* in, void* const* out, float c, int64_t begin, int64_t end) {
  const D d;
  const T* x = static_cast<const T*>(in[0]);
  T* y = static_cast<T*>(out[0]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(F::Value(io.Load(d, x + i), hn::Set(d, c)), d, y + i);
  });
}

template <class T, class F>
void ApplyGrad(const void* const* in, void* const* out, float c, int64_t begin, int64_t end) {
  const D d;
  const T* x = static_cast<const T*>(in[0]);
  const T* dy = static_cast<const T*>(in[1]);
  T* dx = static_cast<T*>(out[0]);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    const V slope = F::Slope(io.Load(d, x + i), hn::Set(d, c));
    io.Store(hn::Mul(io.Load(d, dy + i), slope), d, dx + i);
  });
}

template <class F>
MapFns Fns(DType dtype) {
  if (dtype == DType::kBF16) return {&Apply<uint16_t, F>, &ApplyGrad<uint16_t, F>};
  return {&Apply<float, F>, &ApplyGrad<float, F>};
}

MapFns Select(DType dtype, MapKind kind) {
  switch (kind) {
    case MapKind::kExp:
      return Fns<ExpFn>(dtype);
    case MapKind::kLog:
      return Fns<LogFn>(dtype);
    case MapKind::kSqrt:
      return Fns<SqrtFn>(dtype);
    case MapKind::kAbs:
      return Fns<AbsFn>(dtype);
    case MapKind::kReciprocal:
      return Fns<ReciprocalFn>(dtype);
    case MapKind::kPow:
      return Fns<PowFn>(dtype);
    case MapKind::kMax:
      return Fns<MaxFn>(dtype);
    case MapKind::kMin:
      return Fns<MinFn>(dtype);
    case MapKind::kLess:
      return Fns<LessFn>(dtype);
    case MapKind::kLessEqual:
      return Fns<LessEqualFn>(dtype);
    case MapKind::kGreater:
      return Fns<GreaterFn>(dtype);
    case MapKind::kGreaterEqual:
      return Fns<GreaterEqualFn>(dtype);
    case MapKind::kEqual:
      return Fns<EqualFn>(dtype);
    case MapKind::kNotEqual:
      break;
  }
  return Fns<NotEqualFn>(dtype);
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

class MapKernel : public Kernel {
 public:
  MapKernel(int64_t elements, MapFn fn, double c)
      : tasks_(elements, kCost), fn_(fn), c_(static_cast<float>(c)) {}

  absl::Status Run(const KernelArgs& args) const override {
    tasks_.Run(args.threads,
               [&](int64_t begin, int64_t end) { fn_(args.in, args.out, c_, begin, end); });
    return absl::OkStatus();
  }

 private:
  ElementTasks tasks_;
  MapFn fn_;
  float c_;
};

template <bool kGrad>
absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const MapKind kind, ParseMapKind(types.attrs.GetString("kind")));
  const MapFns fns = HWY_DYNAMIC_DISPATCH(Select)(types.in(0).dtype, kind);
  return std::make_unique<MapKernel>(types.in(0).num_elements(), kGrad ? fns.grad : fns.value,
                                     types.attrs.GetDouble("number", 0));
}

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
  map.make_kernel = MakeKernel<false>;
  map.reference = ReferenceMap;
  map.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  registry->Add(std::move(map));

  OpDef grad;
  grad.name = "map_grad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.may_alias = {{0, 0}, {0, 1}};
  grad.infer = InferMapGrad;
  grad.make_kernel = MakeKernel<true>;
  grad.reference = ReferenceMapGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
#endif  // HWY_ONCE
