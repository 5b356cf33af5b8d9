// SPDX-License-Identifier: Apache-2.0
// The functions of map_kind.h on vectors of f32, with their derivatives with respect to x. Included
// once per SIMD target.
#if defined(PLUMB_RUNTIME_OPS_MAP_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_OPS_MAP_FUNCTIONS_INL_H_
#undef PLUMB_RUNTIME_OPS_MAP_FUNCTIONS_INL_H_
#else
#define PLUMB_RUNTIME_OPS_MAP_FUNCTIONS_INL_H_
#endif

#include <cmath>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "runtime/kernels/simd/tail-inl.h"
#include "runtime/ops/map_kind.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace map_functions {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V One() { return hn::Set(D(), 1.0f); }
HWY_INLINE V Where(hn::Mask<D> mask) { return hn::IfThenElseZero(mask, One()); }

// Each struct has a function f(x, c) and its derivative with respect to x.
struct ExpFn {
  static HWY_INLINE V Value(V x, V) { return ExpKeepingNaN(D(), x); }
  static HWY_INLINE V Slope(V x, V) { return ExpKeepingNaN(D(), x); }
};
// Highway's Log returns finite numbers for arguments that have no logarithm.
struct LogFn {
  static HWY_INLINE V Value(V x, V) {
    const V infinity = hn::Inf(D());
    const V of_zero = hn::IfThenElse(hn::Eq(x, hn::Zero(D())), hn::Neg(infinity), hn::NaN(D()));
    const V of_infinity = hn::IfThenElse(hn::Eq(x, infinity), x, hn::Log(D(), x));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(D())), of_infinity, of_zero);
  }
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
// Applies a function of the standard library to one element at a time.
template <class Function>
V EachElement(V x, const Function& function) {
  HWY_ALIGN float elements[hn::MaxLanes(D())];
  hn::Store(x, D(), elements);
  for (float& element : elements) element = function(element);
  return hn::Load(D(), elements);
}
// Highway's functions are wrong for large arguments, such as steps of a training.
struct CosFn {
  static V Value(V x, V) {
    return EachElement(x, [](float e) { return std::cos(e); });
  }
  static V Slope(V x, V) {
    return EachElement(x, [](float e) { return -std::sin(e); });
  }
};
struct SinFn {
  static V Value(V x, V) {
    return EachElement(x, [](float e) { return std::sin(e); });
  }
  static V Slope(V x, V c) { return CosFn::Value(x, c); }
};
// Exponents are rare, and may be any number.
struct PowFn {
  static V Power(V x, float exponent) {
    return EachElement(x, [exponent](float e) { return std::pow(e, exponent); });
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
struct FloorFn : Step {
  static HWY_INLINE V Value(V x, V) { return hn::Floor(x); }
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

// Calls select(F()); F is the struct of `kind`.
template <class Select>
auto WithMap(MapKind kind, const Select& select) {
  switch (kind) {
    case MapKind::kExp:
      return select(ExpFn());
    case MapKind::kLog:
      return select(LogFn());
    case MapKind::kSqrt:
      return select(SqrtFn());
    case MapKind::kAbs:
      return select(AbsFn());
    case MapKind::kReciprocal:
      return select(ReciprocalFn());
    case MapKind::kCos:
      return select(CosFn());
    case MapKind::kSin:
      return select(SinFn());
    case MapKind::kPow:
      return select(PowFn());
    case MapKind::kMax:
      return select(MaxFn());
    case MapKind::kMin:
      return select(MinFn());
    case MapKind::kFloor:
      return select(FloorFn());
    case MapKind::kLess:
      return select(LessFn());
    case MapKind::kLessEqual:
      return select(LessEqualFn());
    case MapKind::kGreater:
      return select(GreaterFn());
    case MapKind::kGreaterEqual:
      return select(GreaterEqualFn());
    case MapKind::kEqual:
      return select(EqualFn());
    case MapKind::kNotEqual:
      break;
  }
  return select(NotEqualFn());
}

}  // namespace map_functions
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
