// SPDX-License-Identifier: Apache-2.0
// The sum before a norm, for norms that leave it to the host, and conversions from and to bf16, for
// norms that only support f32.
#include "runtime/ops/norm_runner.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/norm_add.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;

template <class T>
void Add(const void* left, const void* right, void* to, int64_t begin, int64_t end) {
  const D d;
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  T* sum = static_cast<T*>(to);
  ForVectors(d, begin, end, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(hn::Add(io.Load(d, a + i), io.Load(d, b + i)), d, sum + i);
  });
}

template <class From, class To>
void Convert(const From* from, To* to, int64_t n) {
  const D d;
  ForVectors(d, 0, n, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(io.Load(d, from + i), d, to + i);
  });
}

NormRowFns Select(DType dtype) {
  return {dtype == DType::kBF16 ? &Add<uint16_t> : &Add<float>, &Convert<uint16_t, float>,
          &Convert<float, uint16_t>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

NormRowFns SelectNormRowFns(DType dtype) { return HWY_DYNAMIC_DISPATCH(Select)(dtype); }

}  // namespace plumb
#endif  // HWY_ONCE
