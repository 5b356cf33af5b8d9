// SPDX-License-Identifier: Apache-2.0
// e^x and 2^x for throughput: a third of the instructions of general ones, since denormal results
// are not computed. Included once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_EXP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

// Where there are instructions that round, scale and bound in one go, which Highway does not have.
#undef PLUMB_AVX512
#define PLUMB_AVX512 (HWY_TARGET == HWY_AVX3)

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// max(x, limit); a NaN stays a NaN, which hn::Max does not promise. x86's own instruction returns
// its second operand when one of them is a NaN.
template <class D>
HWY_INLINE hn::Vec<D> AtLeast(D d, hn::Vec<D> x, float limit) {
  const hn::Vec<D> least = hn::Set(d, limit);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::Max(least, x);
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}
// min(x, limit), alike.
template <class D>
HWY_INLINE hn::Vec<D> AtMost(D d, hn::Vec<D> x, float limit) {
  const hn::Vec<D> most = hn::Set(d, limit);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::Min(most, x);
#else
  return hn::IfThenElse(hn::Gt(x, most), most, x);
#endif
}

// e^x for x <= 88, within 1.2e-7 of it; below -87.3, where the result would no longer be normal,
// e^-87.3 = 1.2e-38. A NaN gives a NaN.
//
// x = n ln 2 + r, |r| <= ln(2) / 2, and e^x = 2^n e^r, e^r = 1 + r + r^2 Q(r) with Q the Chebyshev
// interpolation of degree 4: relative error 1.1e-8 with the coefficients rounded. n is rounded by
// adding a number whose last digit is worth 1, so that it stands in the low bits of the sum.
template <class D>
HWY_INLINE hn::Vec<D> FastExp(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23
  x = AtLeast(d, x, -87.3f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first short enough that n times it is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Estrin's scheme: shorter dependency chains than Horner's.
  const auto square = hn::Mul(r, r);
  const auto high = hn::MulAdd(hn::Set(d, 8.363203146e-03f), r, hn::Set(d, 4.166655615e-02f));
  const auto low = hn::MulAdd(hn::Set(d, 1.666657627e-01f), r, hn::Set(d, 0.5f));
  auto q = hn::MulAdd(hn::Set(d, 1.392621314e-03f), square, high);
  q = hn::MulAdd(q, square, low);
  q = hn::MulAdd(q, square, hn::Add(r, hn::Set(d, 1.0f)));
  const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 0x3f800000u));
  return hn::Mul(q, hn::BitCast(d, power));
}

// |x|, at most `limit`; of a NaN, a number or a NaN.
template <class D>
HWY_INLINE hn::Vec<D> MagnitudeAtMost(D d, hn::Vec<D> x, float limit) {
#if PLUMB_AVX512
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::Vec<D>{_mm512_range_ps(x.raw, hn::Set(d, limit).raw, 0b1010)};
  }
#endif
  return AtMost(d, hn::Abs(x), limit);
}
// x clamped to [-limit, limit]; of a NaN, a number or a NaN.
template <class D>
HWY_INLINE hn::Vec<D> Bounded(D d, hn::Vec<D> x, float limit) {
#if PLUMB_AVX512
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::Vec<D>{_mm512_range_ps(x.raw, hn::Set(d, limit).raw, 0b0010)};
  }
#endif
  return hn::Neg(AtMost(d, hn::Neg(AtMost(d, x, limit)), limit));
}

// 2^x for x <= 127, within 1.7e-7 of it, and 1 at 0; below -126, where the result would no longer
// be normal, something from 0 to 1.2e-38, and 0 at -infinity. A NaN gives a NaN. For arguments that
// were rounded themselves, as FastExp's reduction costs more.
//
// x = n + r, 0 <= r < 1; 2^r the minimax polynomial of degree 5 with that value at 0: relative
// error 8e-8.
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
    return hn::Vec<D>{_mm512_scalef_ps(polynomial(r).raw, x.raw)};  // takes the floor of x itself
  }
#endif
  const hn::RebindToUnsigned<D> du;
  x = AtLeast(d, x, -127.0f);
  const auto n = hn::Floor(x);
  const auto exponent = hn::BitCast(du, hn::Add(n, hn::Set(d, 12582912.0f)));  // as in FastExp
  const auto bits = hn::BitCast(du, polynomial(hn::Sub(x, n)));
  return hn::BitCast(d, hn::Add(bits, hn::ShiftLeft<23>(exponent)));
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
