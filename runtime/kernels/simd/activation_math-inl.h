// SPDX-License-Identifier: Apache-2.0
// The functions of activation_kind.h on vectors of f32, with their derivatives. Included once per
// Highway target. Each struct has
//   Both(d, x, value, derivative), which sets *value = f(x), *derivative = f'(x).
// A result that the caller ignores costs nothing, since everything is inlined.
//
// Relative errors of values are below 4e-7, plus 2.4e-7 E in a tail e^-E, because the exponent is
// rounded; derivatives are within 3e-7 (tests/ops/activation_test). NaN propagates.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_ACTIVATION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_ACTIVATION_MATH_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_ACTIVATION_MATH_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_ACTIVATION_MATH_INL_H_
#endif

#include "hwy/highway.h"
#include "runtime/kernels/simd/activation_kind.h"
#include "runtime/kernels/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {

// Returns c[0] x^n + c[1] x^(n-1) + .. + c[n].
template <class D, class V, size_t kCount>
HWY_INLINE V Polynomial(D d, V x, const float (&c)[kCount]) {
  V sum = hn::Set(d, c[0]);
#pragma GCC unroll 16
  for (size_t i = 1; i < kCount; ++i) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

constexpr float kLog2E = 1.44269504f;

// Sets *value = s = 1 / (1 + 2^y) and *rest = 1 - s = 2^y s, without cancellation, for y <= 126.
template <class D, class V>
HWY_INLINE void Logistic(D d, V y, V* value, V* rest) {
  const V one = hn::Set(d, 1.0f);
  const V e = FastExp2(d, y);
  *value = hn::Div(one, hn::Add(one, e));
  *rest = hn::Mul(e, *value);
}

// Does the same for e^-x in place of 2^y.
template <class D, class V>
HWY_INLINE void SigmoidParts(D d, V x, V* value, V* rest) {
  Logistic(d, AtMost(d, hn::Mul(x, hn::Set(d, -kLog2E)), 126.0f), value, rest);
}

struct Relu {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    *value = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
    *derivative = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f));
  }
};

// Returns Phi(-a) for a = |x|, given its density e^(-a^2/2). Phi(-a) = e^(-a^2/2) R(a), where
// R(a) = e^(a^2/2) Phi(-a) is the smooth, slowly falling Mills ratio (over sqrt(2 pi)). R is
// approximated by P(a) / Q(a), of degrees 3 and 4, with R(0) = 1/2: the minimax fit on 0 <= a <= 14
// for errors in proportion to R (1 + 0.4 a^2), like those of the exponential; relative error 7e-8
// of that. At a = 14, Phi(-a) is below the range of f32. This form keeps the tail's relative
// accuracy, which 1 + erf(x / sqrt(2)) loses; all coefficients are positive, so that nothing
// cancels; and the derivative Phi(x) + x e^(-x^2/2) / sqrt(2 pi) uses the same exponential.
template <class D, class V>
HWY_INLINE V NormalTail(D d, V a, V density) {
  static constexpr float kP[] = {1.44303780e-02f, 1.08375568e-01f, 3.42399433e-01f, 0.5f};
  static constexpr float kQ[] = {3.61830778e-02f, 2.71272637e-01f, 8.99792846e-01f, 1.48268063e+00f,
                                 1.0f};
  return hn::Div(hn::Mul(density, Polynomial(d, a, kP)), Polynomial(d, a, kQ));
}

struct Gelu {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    const V a = MagnitudeAtMost(d, x, 14.0f);
    const V density = FastExp2(d, hn::Mul(hn::Mul(a, a), hn::Set(d, -0.5f * kLog2E)));
    const V tail = NormalTail(d, a, density);
    const V phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
    *value = hn::Mul(x, phi);
    *derivative = hn::MulAdd(hn::Mul(x, hn::Set(d, 0.398942280f)), density, phi);
  }
};

// With s = sigmoid(2u) = (1 + tanh(u)) / 2 and 2u = x (c + k x^2):
//   f = x s,  f' = s + f (1 - s) (c + 3 k x^2).
struct GeluTanh {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    constexpr float kC = 1.5957691216f, kK = 0.0713548162726f;  // 2 sqrt(2/pi), 0.044715 c
    // From |x| = 10 on, s is 0 or 1; without the bound, the exponential may overflow.
    const V bounded = Bounded(d, x, 10.0f);
    const V square = hn::Mul(bounded, bounded);
    const V factor = hn::MulAdd(hn::Set(d, -kLog2E * kK), square, hn::Set(d, -kLog2E * kC));
    V s, rest;
    Logistic(d, hn::Mul(bounded, factor), &s, &rest);
    *value = hn::Mul(x, s);
    const V du = hn::MulAdd(hn::Set(d, 3 * kK), square, hn::Set(d, kC));
    *derivative = hn::MulAdd(hn::Mul(*value, rest), du, s);
  }
};

// With s = sigmoid(x): f = x s,  f' = s + f (1 - s).
struct Silu {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    V s, rest;
    SigmoidParts(d, x, &s, &rest);
    *value = hn::Mul(x, s);
    *derivative = hn::MulAdd(*value, rest, s);
  }
};

// max(x, 0) + log(1 + e), e = e^-|x|. With s = e / (2 + e) <= 1/3, log(1 + e) = 2 artanh(s), a
// series in s^2 without cancellation, whose first omitted term is 2e-9 of it. f' = sigmoid(x).
struct Softplus {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    static constexpr float kSeries[] = {2.0f / 15, 2.0f / 13, 2.0f / 11, 2.0f / 9,
                                        2.0f / 7,  2.0f / 5,  2.0f / 3,  2.0f};
    const V one = hn::Set(d, 1.0f);
    const auto is_negative = hn::Lt(x, hn::Zero(d));
    const V e = FastExp2(d, hn::Mul(hn::Abs(x), hn::Set(d, -kLog2E)));
    const V s = hn::Div(e, hn::Add(e, hn::Set(d, 2.0f)));
    const V positive = hn::IfThenZeroElse(is_negative, x);
    *value = hn::MulAdd(s, Polynomial(d, hn::Mul(s, s), kSeries), positive);
    *derivative = hn::Div(hn::IfThenElse(is_negative, e, one), hn::Add(one, e));
  }
};

// Up to |x| = 0.625, an odd polynomial (Chebyshev interpolation of (tanh(x)/x - 1) / x^2 in x^2,
// degree 4, error 2e-8 of tanh); beyond, 1 - 2 / (e^2|x| + 1), which loses less than two bits.
struct Tanh {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    static constexpr float kOdd[] = {-6.096714176e-03f, 2.099717967e-02f, -5.385090783e-02f,
                                     1.333276927e-01f, -3.333332837e-01f};
    const V one = hn::Set(d, 1.0f);
    const V a = hn::Abs(x);
    const auto is_small = hn::Lt(a, hn::Set(d, 0.625f));

    const V square = hn::Mul(x, x);
    const V small = hn::MulAdd(hn::Mul(x, square), Polynomial(d, square, kOdd), x);

    const V e = FastExp2(d, AtMost(d, hn::Mul(a, hn::Set(d, 2 * kLog2E)), 126.0f));
    const V r = hn::Div(one, hn::Add(e, one));
    const V large = hn::CopySign(hn::Sub(one, hn::Add(r, r)), x);
    *value = hn::IfThenElse(is_small, small, large);
    *derivative = hn::IfThenElse(is_small, hn::NegMulAdd(small, small, one),
                                 hn::Mul(hn::Mul(hn::Set(d, 4.0f), r), hn::Mul(e, r)));
  }
};

struct Sigmoid {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    V rest;
    SigmoidParts(d, x, value, &rest);
    *derivative = hn::Mul(*value, rest);
  }
};

// Up to |x| = 0.625, the Maclaurin series, whose first omitted term is 2e-8 of erf; beyond,
// 1 - 2 Phi(-sqrt(2) |x|).
struct Erf {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* derivative) {
    static constexpr float kSeries[] = {1.0f / 9360, -1.0f / 1320, 1.0f / 216, -1.0f / 42,
                                        0.1f,        -1.0f / 3,    1.0f};
    const V scale = hn::Set(d, 1.12837917f);  // 2 / sqrt(pi)
    const V a = MagnitudeAtMost(d, x, 9.5f);
    const V square = hn::Mul(a, a);
    const V density = FastExp2(d, hn::Mul(square, hn::Set(d, -kLog2E)));
    const V tail = NormalTail(d, hn::Mul(a, hn::Set(d, 1.41421356f)), density);
    const V large = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), hn::Add(tail, tail)), x);
    const V small = hn::Mul(hn::Mul(scale, x), Polynomial(d, square, kSeries));
    *value = hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), small, large);
    *value = hn::IfThenElse(hn::Eq(x, x), *value, x);  // the bound of x loses a NaN
    *derivative = hn::Mul(scale, density);
  }
};

// Returns select(F()), where F is the function of that kind.
template <class Select>
auto WithActivation(ActivationKind kind, const Select& select) {
  switch (kind) {
    case ActivationKind::kRelu:
      return select(Relu());
    case ActivationKind::kGelu:
      return select(Gelu());
    case ActivationKind::kGeluTanh:
      return select(GeluTanh());
    case ActivationKind::kSilu:
      return select(Silu());
    case ActivationKind::kSoftplus:
      return select(Softplus());
    case ActivationKind::kTanh:
      return select(Tanh());
    case ActivationKind::kSigmoid:
      return select(Sigmoid());
    case ActivationKind::kErf:
      return select(Erf());
  }
  return select(Relu());
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
