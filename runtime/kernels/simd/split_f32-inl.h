// SPDX-License-Identifier: Apache-2.0
// Loads and stores vectors of split f32 (split_f32.h), with the interface of bf16-inl.h. Included
// once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/split_f32.h"
#include "runtime/kernels/simd/tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tag for as many 16-bit lanes as D has.
template <class D>
using Bf16Tag = hn::Rebind<uint16_t, D>;

template <class D>
HWY_INLINE hn::Vec<D> JoinVectors(D d, hn::Vec<Bf16Tag<D>> high, hn::Vec<Bf16Tag<D>> low) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::RebindToSigned<Bf16Tag<D>> di16;
  const auto top = hn::ShiftLeft<16>(hn::PromoteTo(du, high));
  const auto rest = hn::BitCast(du, hn::PromoteTo(di, hn::BitCast(di16, low)));
  return hn::BitCast(d, hn::Add(top, rest));
}

template <class D>
HWY_INLINE void SplitVector(D /*d*/, hn::Vec<D> v, hn::Vec<Bf16Tag<D>>* high,
                            hn::Vec<Bf16Tag<D>>* low) {
  const hn::RebindToUnsigned<D> du;
  const Bf16Tag<D> d16;
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  auto bits = hn::BitCast(du, v);
  const auto quiet = hn::Or(hn::And(bits, hn::Set(du, 0xffff0000u)), hn::Set(du, 0x400000u));
  bits = hn::IfThenElse(is_nan, quiet, bits);
  *high = hn::TruncateTo(d16, hn::ShiftRight<16>(hn::Add(bits, hn::Set(du, 0x8000u))));
  *low = hn::TruncateTo(d16, bits);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const SplitF32& from) {
  const Bf16Tag<D> d16;
  return JoinVectors(d, hn::LoadU(d16, from.high), hn::LoadU(d16, from.low));
}
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> v, D d, const SplitF32& to) {
  const Bf16Tag<D> d16;
  hn::Vec<Bf16Tag<D>> high, low;
  SplitVector(d, v, &high, &low);
  hn::StoreU(high, d16, to.high);
  hn::StoreU(low, d16, to.low);
}

// Loads and stores the last, partial vector. To be constructed before the loop.
template <class D>
class SplitF32Tail {
 public:
  HWY_INLINE SplitF32Tail(D /*d*/, int64_t count) : tail_(Bf16Tag<D>(), count) {}

  HWY_INLINE hn::Vec<D> Load(D d, const SplitF32& from) const {
    const Bf16Tag<D> d16;
    return JoinVectors(d, tail_.Load(d16, from.high), tail_.Load(d16, from.low));
  }
  HWY_INLINE void Store(hn::Vec<D> v, D d, const SplitF32& to) const {
    const Bf16Tag<D> d16;
    hn::Vec<Bf16Tag<D>> high, low;
    SplitVector(d, v, &high, &low);
    tail_.Store(high, d16, to.high);
    tail_.Store(low, d16, to.low);
  }

 private:
  Tail<Bf16Tag<D>> tail_;
};

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
