// The sum before a norm, for norms that leave it to the host, and rows from bf16 and to it, for
// norms that know f32 alone.
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
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    StoreFloats(hn::Add(LoadFloats(d, a + i), LoadFloats(d, b + i)), d, sum + i);
  }
  if (i < end) {
    const FloatTail<D> tail(d, end - i);
    tail.Store(hn::Add(tail.Load(d, a + i), tail.Load(d, b + i)), d, sum + i);
  }
}

template <class From, class To>
void Convert(const From* from, To* to, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreFloats(LoadFloats(d, from + i), d, to + i);
  if (i < n) {
    const FloatTail<D> tail(d, n - i);
    tail.Store(tail.Load(d, from + i), d, to + i);
  }
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
