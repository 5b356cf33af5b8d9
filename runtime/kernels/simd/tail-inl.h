// SPDX-License-Identifier: Apache-2.0
// Loads and stores the last, partial vector of a row without touching memory beyond it. Included
// once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_TAIL_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_TAIL_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_TAIL_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Minimum size in bytes of an element for which masked loads and stores do not fault on masked
// lanes. AVX2 has none for 16 bits, where Highway would read a whole vector; smaller elements go
// through a buffer.
#if HWY_TARGET == HWY_AVX3
inline constexpr size_t kMinMasked = 1;
#elif HWY_TARGET == HWY_AVX2
inline constexpr size_t kMinMasked = 4;
#else
inline constexpr size_t kMinMasked = 16;
#endif

// First `count` lanes of a vector, 1 <= count <= Lanes(d). To be constructed once per loop.
template <class D>
class Tail {
 public:
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;

  HWY_INLINE Tail(D d, int64_t count)
      : mask_(hn::FirstN(d, static_cast<size_t>(count))), count_(static_cast<size_t>(count)) {}

  HWY_INLINE hn::Mask<D> mask() const { return mask_; }

  // Loads the lanes; those beyond the count are 0.
  HWY_INLINE V Load(D d, const T* HWY_RESTRICT from) const {
    if constexpr (sizeof(T) >= kMinMasked) {
      return hn::MaskedLoad(mask_, d, from);
    } else {
      HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
      std::memcpy(lanes, from, count_ * sizeof(T));
      return hn::Load(d, lanes);
    }
  }

  HWY_INLINE void Store(V v, D d, T* HWY_RESTRICT to) const {
    if constexpr (sizeof(T) >= kMinMasked) {
      hn::BlendedStore(v, mask_, d, to);
    } else {
      HWY_ALIGN T lanes[hn::MaxLanes(D())];
      hn::Store(v, d, lanes);
      std::memcpy(to, lanes, count_ * sizeof(T));
    }
  }

 private:
  hn::Mask<D> mask_;
  size_t count_;
};

// Returns e^x and keeps a NaN, which Highway's Exp turns into 0; that would hide a divergence.
template <class D>
HWY_INLINE hn::Vec<D> ExpKeepingNaN(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
