// SPDX-License-Identifier: Apache-2.0
// Loads and stores float vectors in f32 or bf16 memory, so that a kernel is written once for both.
// Included once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_BF16_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_BF16_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_BF16_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "runtime/kernels/simd/tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* HWY_RESTRICT from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> v, D d, float* HWY_RESTRICT to) {
  hn::StoreU(v, d, to);
}

// Widens bf16, which is uint16_t in memory.
template <class D>
HWY_INLINE hn::Vec<D> WidenBf16(D d, hn::Vec<hn::Rebind<uint16_t, D>> bf16) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bf16)));
}
// Rounds to nearest, ties to even. A NaN stays a NaN.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundToBf16(D /*d*/, hn::Vec<D> v) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) {  // the same with masks, in half the instructions
    const __m512i in = _mm512_castps_si512(v.raw);
    const __mmask16 odd_bits = _mm512_test_epi32_mask(in, _mm512_set1_epi32(0x10000));
    const __mmask16 nans = _mm512_cmp_ps_mask(v.raw, v.raw, _CMP_UNORD_Q);
    __m512i sum = _mm512_add_epi32(in, _mm512_set1_epi32(0x7fff));
    sum = _mm512_mask_add_epi32(sum, odd_bits, in, _mm512_set1_epi32(0x8000));
    sum = _mm512_mask_or_epi32(sum, nans, in, _mm512_set1_epi32(0x400000));
    return hn::Vec<hn::Rebind<uint16_t, D>>{_mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16))};
  }
#endif
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto top = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  return hn::DemoteTo(d16, hn::BitCast(di, top));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const uint16_t* HWY_RESTRICT from) {
  return WidenBf16(d, hn::LoadU(hn::Rebind<uint16_t, D>(), from));
}
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> v, D d, uint16_t* HWY_RESTRICT to) {
  hn::StoreU(RoundToBf16(d, v), hn::Rebind<uint16_t, D>(), to);
}

#if HWY_TARGET == HWY_AVX3
// bf16 memory that is stored with the processor's conversion, one instruction instead of seven, for
// kernels that are called only if UsesBf16Instructions() (cpu_features.h). The bits are the same,
// except that denormals become 0.
struct FastBf16 {
  uint16_t bits;
};
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundFast(D /*d*/, hn::Vec<D> v) {
  static_assert(hn::MaxLanes(D()) == 16, "of whole vectors");
  __m256i bf16;  // assembly, since the target of these functions lacks the intrinsic
  asm("vcvtneps2bf16 %1, %0" : "=v"(bf16) : "v"(v.raw));
  return hn::Vec<hn::Rebind<uint16_t, D>>{bf16};
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const FastBf16* HWY_RESTRICT from) {
  return LoadFloats(d, &from->bits);
}
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> v, D d, FastBf16* HWY_RESTRICT to) {
  hn::StoreU(RoundFast(d, v), hn::Rebind<uint16_t, D>(), &to->bits);
}
#endif

// Loads and stores the last, partial vector of a row. To be constructed before the loop.
template <class D>
class FloatTail {
 public:
  HWY_INLINE FloatTail(D d, int64_t count)
      : floats_(d, count), bf16_(hn::Rebind<uint16_t, D>(), count) {}

  HWY_INLINE hn::Mask<D> mask() const { return floats_.mask(); }
  HWY_INLINE hn::Vec<D> Load(D d, const float* HWY_RESTRICT from) const {
    return floats_.Load(d, from);
  }
  HWY_INLINE hn::Vec<D> Load(D d, const uint16_t* HWY_RESTRICT from) const {
    return WidenBf16(d, bf16_.Load(hn::Rebind<uint16_t, D>(), from));
  }
  HWY_INLINE void Store(hn::Vec<D> v, D d, float* HWY_RESTRICT to) const {
    floats_.Store(v, d, to);
  }
  HWY_INLINE void Store(hn::Vec<D> v, D d, uint16_t* HWY_RESTRICT to) const {
    bf16_.Store(RoundToBf16(d, v), hn::Rebind<uint16_t, D>(), to);
  }
#if HWY_TARGET == HWY_AVX3
  HWY_INLINE hn::Vec<D> Load(D d, const FastBf16* HWY_RESTRICT from) const {
    return Load(d, &from->bits);
  }
  HWY_INLINE void Store(hn::Vec<D> v, D d, FastBf16* HWY_RESTRICT to) const {
    bf16_.Store(RoundFast(d, v), hn::Rebind<uint16_t, D>(), &to->bits);
  }
#endif

 private:
  Tail<D> floats_;
  Tail<hn::Rebind<uint16_t, D>> bf16_;
};

// Loads and stores a whole vector, with the interface of FloatTail.
template <class D>
struct WholeFloats {
  template <class T>
  HWY_INLINE hn::Vec<D> Load(D d, const T* HWY_RESTRICT from) const {
    return LoadFloats(d, from);
  }
  template <class T>
  HWY_INLINE void Store(hn::Vec<D> v, D d, T* HWY_RESTRICT to) const {
    StoreFloats(v, d, to);
  }
};

// Calls body(io, i) for each vector of elements [begin, end), where i is its first element and io a
// WholeFloats, or a FloatTail for a partial last vector. The body is a lambda with HWY_ATTR.
template <class D, class Body>
HWY_INLINE void ForVectors(D d, int64_t begin, int64_t end, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(WholeFloats<D>(), i);
  if (i < end) body(FloatTail<D>(d, end - i), i);
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
