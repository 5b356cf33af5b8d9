// SPDX-License-Identifier: Apache-2.0
// e^x and 2^x for throughput: a third of the instructions of general versions, since denormal
// results are not computed. Included once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

// AVX-512 has instructions that round, scale and clamp in one step, which Highway does not expose.
#undef PLUMB_AVX512
#define PLUMB_AVX512 (HWY_TARGET == HWY_AVX3)

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns max(x, limit). A NaN stays a NaN, which hn::Max does not guarantee: x86's instruction
// returns its second operand if one of them is a NaN.
template <class D>
HWY_INLINE hn::Vec<D> AtLeast(D d, hn::Vec<D> x, float limit) {
  const hn::Vec<D> least = hn::Set(d, limit);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::Max(least, x);
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}
// Returns min(x, limit). A NaN stays a NaN.
template <class D>
HWY_INLINE hn::Vec<D> AtMost(D d, hn::Vec<D> x, float limit) {
  const hn::Vec<D> most = hn::Set(d, limit);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::Min(most, x);
#else
  return hn::IfThenElse(hn::Gt(x, most), most, x);
#endif
}

// Returns e^x for x <= 88, with relative error 1.2e-7; below -87.3, where the result would no
// longer be normal, e^-87.3 = 1.2e-38. A NaN stays a NaN.
//
// x = n ln 2 + r, |r| <= ln(2) / 2, and e^x = 2^n e^r, e^r = 1 + r + r^2 Q(r) with Q the Chebyshev
// interpolation of degree 4: relative error 1.1e-8 with the coefficients rounded. n is rounded by
// adding a number whose last digit has the value 1, so that n is in the low bits of the sum.
template <class D>
HWY_INLINE hn::Vec<D> FastExp(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23
  x = AtLeast(d, x, -87.3f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 is split in two parts, the first short enough that n times it is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Estrin's scheme has shorter dependency chains than Horner's.
  const auto square = hn::Mul(r, r);
  const auto high = hn::MulAdd(hn::Set(d, 8.363203146e-03f), r, hn::Set(d, 4.166655615e-02f));
  const auto low = hn::MulAdd(hn::Set(d, 1.666657627e-01f), r, hn::Set(d, 0.5f));
  auto q = hn::MulAdd(hn::Set(d, 1.392621314e-03f), square, high);
  q = hn::MulAdd(q, square, low);
  q = hn::MulAdd(q, square, hn::Add(r, hn::Set(d, 1.0f)));
  const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 0x3f800000u));
  return hn::Mul(q, hn::BitCast(d, power));
}

// Returns min(|x|, limit). A NaN may become a number.
template <class D>
HWY_INLINE hn::Vec<D> MagnitudeAtMost(D d, hn::Vec<D> x, float limit) {
#if PLUMB_AVX512
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::Vec<D>{_mm512_range_ps(x.raw, hn::Set(d, limit).raw, 0b1010)};
  }
#endif
  return AtMost(d, hn::Abs(x), limit);
}
// Returns x clamped to [-limit, limit]. A NaN may become a number.
template <class D>
HWY_INLINE hn::Vec<D> Bounded(D d, hn::Vec<D> x, float limit) {
#if PLUMB_AVX512
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::Vec<D>{_mm512_range_ps(x.raw, hn::Set(d, limit).raw, 0b0010)};
  }
#endif
  return hn::Neg(AtMost(d, hn::Neg(AtMost(d, x, limit)), limit));
}

// Returns 2^x for x <= 127, with relative error 1.7e-7, and exactly 1 at 0. Below -126, where the
// result would no longer be normal, it is between 0 and 1.2e-38, and 0 at -infinity. A NaN stays a
// NaN. For arguments that are rounded already; FastExp has a more expensive range reduction.
//
// x = n + r, 0 <= r < 1; 2^r is the minimax polynomial of degree 5 that is exact at 0, with
// relative error 8e-8.
template <class D>
HWY_INLINE hn::Vec<D> FastExp2(D d, hn::Vec<D> x) {
  const auto polynomial = [d](hn::Vec<D> r) HWY_ATTR {
    const auto square = hn::Mul(r, r);
    const auto low = hn::MulAdd(hn::Set(d, 0.693151312f), r, hn::Set(d, 1.0f));
    const auto middle = hn::MulAdd(hn::Set(d, 5.57999134e-02f), r, hn::Set(d, 2.40164450e-01f));
    const auto high = hn::MulAdd(hn::Set(d, 1.86713017e-03f), r, hn::Set(d, 9.01703003e-03f));
    return hn::MulAdd(hn::MulAdd(high, square, middle), square, low);
  };
#if PLUMB_AVX512
  if constexpr (hn::MaxLanes(D()) == 16) {
    const hn::Vec<D> r{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF)};
    return hn::Vec<D>{_mm512_scalef_ps(polynomial(r).raw, x.raw)};  // scalef takes the floor of x
  }
#endif
  const hn::RebindToUnsigned<D> du;
  x = AtLeast(d, x, -127.0f);
  const auto n = hn::Floor(x);
  const auto exponent = hn::BitCast(du, hn::Add(n, hn::Set(d, 12582912.0f)));  // see FastExp
  const auto bits = hn::BitCast(du, polynomial(hn::Sub(x, n)));
  return hn::BitCast(d, hn::Add(bits, hn::ShiftLeft<23>(exponent)));
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
