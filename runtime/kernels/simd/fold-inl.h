// SPDX-License-Identifier: Apache-2.0
// Horizontal sums and maxima of four vectors at once, which is cheaper than separately. Included
// once per Highway target.
#if defined(PLUMB_RUNTIME_KERNELS_SIMD_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_SIMD_FOLD_INL_H_
#undef PLUMB_RUNTIME_KERNELS_SIMD_FOLD_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_SIMD_FOLD_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Maximum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

#if HWY_TARGET != HWY_SCALAR
// Folds a vector of whole groups of four lanes into one group.
template <class D, class Fold>
HWY_INLINE auto FoldToFour(D d, hn::Vec<D> v, const Fold& fold) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return FoldToFour(half, fold(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), fold);
  } else {
    (void)d;
    return v;
  }
}
#endif

// Folds all lanes of v_r into to[r]. D has at least four lanes, except for the scalar target.
template <class D, class Fold>
HWY_INLINE void FoldLanes(D d, hn::Vec<D> v0, hn::Vec<D> v1, hn::Vec<D> v2, hn::Vec<D> v3,
                          const Fold& fold, float* to) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  (void)fold;
  to[0] = hn::GetLane(v0);
  to[1] = hn::GetLane(v1);
  to[2] = hn::GetLane(v2);
  to[3] = hn::GetLane(v3);
#else
  const hn::Repartition<double, D> pairs;
  // Within groups of four lanes: 0 1 0 1, 2 3 2 3, then 0 1 2 3.
  const auto v01 =
      hn::BitCast(pairs, fold(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1)));
  const auto v23 =
      hn::BitCast(pairs, fold(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3)));
  const auto all = fold(hn::BitCast(d, hn::InterleaveLower(pairs, v01, v23)),
                        hn::BitCast(d, hn::InterleaveUpper(pairs, v01, v23)));
  hn::StoreU(FoldToFour(d, all, fold), hn::CappedTag<float, 4>(), to);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
