// e^x for kernels that take many of them: a third of the instructions of a general one, since it
// leaves out numbers below the normal range. Included once per Highway target.
#if defined(PLUMB_RUNTIME_OPS_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_OPS_SIMD_EXP_INL_H_
#undef PLUMB_RUNTIME_OPS_SIMD_EXP_INL_H_
#else
#define PLUMB_RUNTIME_OPS_SIMD_EXP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// max(x, limit); a NaN stays a NaN, which hn::Max does not promise. x86's own instruction returns
// its second operand when one of them is a NaN.
template <class D>
HWY_INLINE hn::Vec<D> AtLeast(D d, hn::Vec<D> x, float limit) {
  const hn::Vec<D> least = hn::Set(d, limit);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  return hn::Max(least, x);
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}
// min(x, limit), alike.
template <class D>
HWY_INLINE hn::Vec<D> AtMost(D d, hn::Vec<D> x, float limit) {
  const hn::Vec<D> most = hn::Set(d, limit);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
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
  // In pairs: a chain of six additions would wait for itself.
  const auto square = hn::Mul(r, r);
  const auto high = hn::MulAdd(hn::Set(d, 8.363203146e-03f), r, hn::Set(d, 4.166655615e-02f));
  const auto low = hn::MulAdd(hn::Set(d, 1.666657627e-01f), r, hn::Set(d, 0.5f));
  auto q = hn::MulAdd(hn::Set(d, 1.392621314e-03f), square, high);
  q = hn::MulAdd(q, square, low);
  q = hn::MulAdd(q, square, hn::Add(r, hn::Set(d, 1.0f)));
  const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 0x3f800000u));
  return hn::Mul(q, hn::BitCast(d, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
