// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/split_f32.h"

#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/split_f32.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/split_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;

void SplitRange(const float* from, int64_t n, const SplitF32& to) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreFloats(hn::LoadU(d, from + i), d, to + i);
  for (; i < n; ++i) SplitFloat(from[i], to.high + i, to.low + i);
}

void JoinRange(const SplitF32& from, int64_t n, float* to) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(LoadFloats(d, from + i), d, to + i);
  for (; i < n; ++i) to[i] = JoinFloat(from.high[i], from.low[i]);
}

void HighRange(const float* from, int64_t n, uint16_t* to) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::Vec<Bf16Tag<D>> high, low;
    SplitVector(d, hn::LoadU(d, from + i), &high, &low);
    hn::StoreU(high, Bf16Tag<D>(), to + i);
  }
  for (uint16_t low; i < n; ++i) SplitFloat(from[i], to + i, &low);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SplitRange);
HWY_EXPORT(JoinRange);
HWY_EXPORT(HighRange);

namespace {

// Calls body(begin, length) for ranges that cover [0, n).
template <class Body>
void ForEachRange(int64_t n, int threads, const Body& body) {
  const int64_t tasks = TaskCount(n, n);
  ParallelFor(tasks, threads, [&](int64_t i) {
    const Range range = TaskRange(n, tasks, i);
    body(range.begin, range.end - range.begin);
  });
}

}  // namespace

void SplitFloats(const float* from, int64_t n, int threads, const SplitF32& to) {
  const auto split = HWY_DYNAMIC_DISPATCH(SplitRange);
  ForEachRange(n, threads,
               [&](int64_t begin, int64_t length) { split(from + begin, length, to + begin); });
}

void JoinFloats(const SplitF32& from, int64_t n, int threads, float* to) {
  const auto join = HWY_DYNAMIC_DISPATCH(JoinRange);
  ForEachRange(n, threads,
               [&](int64_t begin, int64_t length) { join(from + begin, length, to + begin); });
}

void HighBf16(const float* from, int64_t n, int threads, uint16_t* to) {
  const auto high = HWY_DYNAMIC_DISPATCH(HighRange);
  ForEachRange(n, threads,
               [&](int64_t begin, int64_t length) { high(from + begin, length, to + begin); });
}

}  // namespace plumb
#endif  // HWY_ONCE
