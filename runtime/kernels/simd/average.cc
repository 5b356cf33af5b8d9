// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <algorithm>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/average.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/split_f32-inl.h"

#ifndef PLUMB_AVERAGE_TYPES
#define PLUMB_AVERAGE_TYPES
namespace plumb {
namespace {

struct AverageFns {
  void (*floats)(const float* x, float weight, int64_t n, float* average);
  void (*split)(const SplitF32& x, float weight, int64_t n, float* average);
};

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <class SourceTail, class Source>
HWY_INLINE void Move(const Source& x, float weight, int64_t n, float* average) {
  const D d;
  const V by = hn::Set(d, weight);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V old = hn::LoadU(d, average + i);
    hn::StoreU(hn::MulAdd(by, hn::Sub(LoadFloats(d, x + i), old), old), d, average + i);
  }
  if (i < n) {
    const Tail<D> tail(d, n - i);
    const SourceTail source_tail(d, n - i);
    const V old = tail.Load(d, average + i);
    tail.Store(hn::MulAdd(by, hn::Sub(source_tail.Load(d, x + i), old), old), d, average + i);
  }
}
void MoveFloats(const float* x, float weight, int64_t n, float* average) {
  Move<Tail<D>>(x, weight, n, average);
}
void MoveSplit(const SplitF32& x, float weight, int64_t n, float* average) {
  Move<SplitF32Tail<D>>(x, weight, n, average);
}

AverageFns SelectAverage() { return {MoveFloats, MoveSplit}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectAverage);

namespace {

AverageFns AverageFunctions() { return HWY_DYNAMIC_DISPATCH(SelectAverage)(); }

constexpr int64_t kAveragedElements = 32768;  // elements of a task

template <class Source, class Fn>
void MoveInTasks(const Source& x, Fn move, float weight, int64_t n, int threads, float* average) {
  ParallelFor(CeilDiv(n, kAveragedElements), threads, [&](int64_t task) {
    const int64_t begin = task * kAveragedElements;
    move(x + begin, weight, std::min(kAveragedElements, n - begin), average + begin);
  });
}

}  // namespace

void MoveTowards(const float* x, float weight, int64_t n, int threads, float* average) {
  MoveInTasks(x, AverageFunctions().floats, weight, n, threads, average);
}

void MoveTowards(const SplitF32& x, float weight, int64_t n, int threads, float* average) {
  MoveInTasks(x, AverageFunctions().split, weight, n, threads, average);
}

}  // namespace plumb
#endif  // HWY_ONCE
