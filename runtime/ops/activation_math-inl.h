// The functions of activation_kind.h on vectors of f32, with their derivatives. Included once per
// SIMD target. Each struct has
//   Both(d, x, value, slope): *value = f(x), *slope = f'(x);
// a caller that ignores one of the two does not pay for it, since everything is inlined.
//
// Relative errors of values are below 3e-7, plus 2.4e-7 E in a tail e^-E, whose exponent is
// rounded; slopes are within 3e-7 (tests/ops/activation_test). NaN gives NaN.
#if defined(PLUMB_RUNTIME_OPS_ACTIVATION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_OPS_ACTIVATION_MATH_INL_H_
#undef PLUMB_RUNTIME_OPS_ACTIVATION_MATH_INL_H_
#else
#define PLUMB_RUNTIME_OPS_ACTIVATION_MATH_INL_H_
#endif

#include "hwy/highway.h"
#include "runtime/ops/simd_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {

// c[0] x^n + c[1] x^(n-1) + .. + c[n]: even and odd powers apart, since one chain of additions
// would wait for itself.
template <class D, class V, size_t kCount>
HWY_INLINE V Polynomial(D d, V x, const float (&c)[kCount]) {
  const V square = hn::Mul(x, x);
  V sum = hn::Set(d, c[0]), other = hn::Set(d, c[1]);
#pragma GCC unroll 16
  for (size_t i = 2; i < kCount; ++i) {
    V& chain = i % 2 == 0 ? sum : other;
    chain = hn::MulAdd(chain, square, hn::Set(d, c[i]));
  }
  return kCount % 2 == 1 ? hn::MulAdd(other, x, sum) : hn::MulAdd(sum, x, other);
}

// s = 1 / (1 + e^-x) and s' = s (1 - s) = e^-x s^2, without the cancellation of 1 - s.
template <class D, class V>
HWY_INLINE void SigmoidBoth(D d, V x, V* value, V* slope) {
  const V one = hn::Set(d, 1.0f);
  const V e = FastExp(d, AtMost(d, hn::Neg(x), 88.0f));  // e^88 is still finite
  *value = hn::Div(one, hn::Add(one, e));
  *slope = hn::Mul(hn::Mul(e, *value), *value);
}

struct Relu {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* slope) {
    *value = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
    *slope = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f));
  }
};

// With a = |x|, Phi(-a) = e^(-a^2/2) R(a), where R(a) = e^(a^2/2) Phi(-a) is the smooth, slowly
// falling Mills ratio (over sqrt(2 pi)). With t = 1 / (1 + 0.3 a) and s = 1 - t,
//   R = t (1/2 + s Q(s)),
// Q the Chebyshev interpolation of degree 8 on 0 <= a <= 14, computed with 40 digits: relative
// error 3e-8 with the coefficients rounded, and none at 0. At a = 14, Phi(-a) is below the range of
// f32. The form keeps the tail's relative accuracy, which 1 + erf(x / sqrt(2)) loses, and its
// exponential serves the derivative too:
//   Phi(x) + x e^(-x^2/2) / sqrt(2 pi).
struct Gelu {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* slope) {
    static constexpr float kMills[] = {1.800805517e-02f,  -6.380341202e-02f, 5.722945929e-02f,
                                       2.124954015e-02f,  1.821683533e-02f,  -1.383476704e-01f,
                                       -8.122620732e-02f, 6.181602478e-01f,  -8.298075795e-01f};
    const V one = hn::Set(d, 1.0f);
    const V half = hn::Set(d, 0.5f);
    const V a = AtMost(d, hn::Abs(x), 14.0f);
    // e^(-a^2/2) to first order in the rounding error of a^2, which the exponential would enlarge.
    const V square = hn::Mul(a, a);
    const V rest = hn::MulSub(a, a, square);
    const V exp = FastExp(d, hn::Neg(hn::Mul(half, square)));
    const V density = hn::NegMulAdd(hn::Mul(half, rest), exp, exp);

    const V scaled = hn::Mul(hn::Set(d, 0.3f), a);
    const V t = hn::Div(one, hn::Add(one, scaled));
    const V s = hn::Mul(scaled, t);
    const V ratio = hn::Mul(t, hn::MulAdd(s, Polynomial(d, s, kMills), half));
    const V tail = hn::Mul(density, ratio);
    const V phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
    *value = hn::Mul(x, phi);
    *slope = hn::MulAdd(hn::Mul(x, hn::Set(d, 0.398942280f)), density, phi);
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2u), 2u = x (c + k x^2):
//   f = x s,  f' = s + x s' (c + 3 k x^2).
struct GeluTanh {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* slope) {
    const V c = hn::Set(d, 1.5957691216f);     // 2 sqrt(2/pi)
    const V k = hn::Set(d, 0.0713548162726f);  // 0.044715 c
    // From 20 on, s is 0 or 1; beyond, the square may overflow.
    const V bounded = hn::Neg(AtMost(d, hn::Neg(AtMost(d, x, 20.0f)), 20.0f));
    const V square = hn::Mul(bounded, bounded);
    V s, ds;
    SigmoidBoth(d, hn::Mul(bounded, hn::MulAdd(k, square, c)), &s, &ds);
    *value = hn::Mul(x, s);
    const V du = hn::MulAdd(hn::Mul(hn::Set(d, 3.0f), k), square, c);
    *slope = hn::MulAdd(hn::Mul(x, ds), du, s);
  }
};

struct Silu {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* slope) {
    V s, ds;
    SigmoidBoth(d, x, &s, &ds);
    *value = hn::Mul(x, s);
    *slope = hn::MulAdd(x, ds, s);
  }
};

// Up to |x| = 0.625 an odd polynomial (Chebyshev interpolation of (tanh(x)/x - 1) / x^2 in x^2,
// degree 4, error 2e-8 of tanh); from there on 1 - 2 / (e^2|x| + 1), which has lost less than two
// bits.
struct Tanh {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* slope) {
    static constexpr float kOdd[] = {-6.096714176e-03f, 2.099717967e-02f, -5.385090783e-02f,
                                     1.333276927e-01f, -3.333332837e-01f};
    const V one = hn::Set(d, 1.0f);
    const V a = hn::Abs(x);
    const auto near = hn::Lt(a, hn::Set(d, 0.625f));

    const V square = hn::Mul(x, x);
    const V small = hn::MulAdd(hn::Mul(x, square), Polynomial(d, square, kOdd), x);

    const V e = FastExp(d, AtMost(d, hn::Add(a, a), 88.0f));
    const V r = hn::Div(one, hn::Add(e, one));
    const V large = hn::CopySign(hn::Sub(one, hn::Add(r, r)), x);
    *value = hn::IfThenElse(near, small, large);
    *slope = hn::IfThenElse(near, hn::NegMulAdd(small, small, one),
                            hn::Mul(hn::Mul(hn::Set(d, 4.0f), r), hn::Mul(e, r)));
  }
};

struct Sigmoid {
  template <class D, class V>
  static HWY_INLINE void Both(D d, V x, V* value, V* slope) {
    SigmoidBoth(d, x, value, slope);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
