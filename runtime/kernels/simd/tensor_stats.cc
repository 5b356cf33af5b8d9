// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/tensor_stats.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/bf16.h"
#include "runtime/base/divide.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/tensor_stats.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/split_f32-inl.h"

#ifndef PLUMB_TENSOR_STATS_WIDEN
#define PLUMB_TENSOR_STATS_WIDEN
namespace plumb {
namespace {
// Returns the first element of a tensor in f32, bf16 or split f32 as a float.
float Widen(const float* x) { return *x; }
float Widen(const uint16_t* x) { return FloatFromBf16(*x); }
float Widen(const SplitF32& x) { return JoinFloat(*x.high, *x.low); }
}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Computes statistics of finite elements. If an element is not finite, sum_squares is not either;
// it cannot overflow otherwise. X is a pointer or SplitF32.
template <class X>
TensorStats StatsOfFinite(X x, int64_t n) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  TensorStats stats;
  stats.count = n;
  int64_t i = 0;
  if (n >= 2 * lanes) {
    // Two independent accumulators of each kind hide the latency of the additions.
    auto sum0 = hn::Zero(wide), sum1 = sum0, square0 = sum0, square1 = sum0;
    auto max0 = hn::Zero(narrow), max1 = max0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto x0 = LoadFloats(narrow, x + i), x1 = LoadFloats(narrow, x + i + lanes);
      const auto w0 = hn::PromoteTo(wide, x0), w1 = hn::PromoteTo(wide, x1);
      max0 = hn::Max(max0, hn::Abs(x0));
      max1 = hn::Max(max1, hn::Abs(x1));
      sum0 = hn::Add(sum0, w0);
      sum1 = hn::Add(sum1, w1);
      square0 = hn::MulAdd(w0, w0, square0);
      square1 = hn::MulAdd(w1, w1, square1);
    }
    stats.sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(sum0, sum1)));
    stats.sum_squares = hn::GetLane(hn::SumOfLanes(wide, hn::Add(square0, square1)));
    stats.max_abs = hn::GetLane(hn::MaxOfLanes(narrow, hn::Max(max0, max1)));
  }
  for (; i < n; ++i) {
    const float value = Widen(x + i);
    const double e = static_cast<double>(value);
    stats.sum += e;
    stats.sum_squares += e * e;
    stats.max_abs = std::max(stats.max_abs, std::abs(value));
  }
  return stats;
}

template <class X>
using StatsFn = TensorStats (*)(X x, int64_t n);
StatsFn<const float*> SelectStats() { return &StatsOfFinite<const float*>; }
StatsFn<const uint16_t*> SelectBf16Stats() { return &StatsOfFinite<const uint16_t*>; }
StatsFn<SplitF32> SelectSplitStats() { return &StatsOfFinite<SplitF32>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectStats);
HWY_EXPORT(SelectBf16Stats);
HWY_EXPORT(SelectSplitStats);

namespace {

// Number of elements of a task, worth the cost of waking a thread.
constexpr int64_t kTaskElements = 32768;

template <class X>
TensorStats StatsOfAny(X x, int64_t n) {
  TensorStats stats;
  for (int64_t i = 0; i < n; ++i) {
    const float value = Widen(x + i);
    if (!std::isfinite(value)) {
      ++stats.nonfinite;
      continue;
    }
    const double e = static_cast<double>(value);
    ++stats.count;
    stats.sum += e;
    stats.sum_squares += e * e;
    stats.max_abs = std::max(stats.max_abs, std::abs(value));
  }
  return stats;
}

template <class X>
TensorStats StatsInStretches(TensorStats (*stats_of_finite)(X x, int64_t n), X x, int64_t n,
                             int threads) {
  const ScopedNoDenormals no_denormals;
  const auto stretch = [&](int64_t begin, int64_t end) {
    const TensorStats stats = stats_of_finite(x + begin, end - begin);
    return std::isfinite(stats.sum_squares) ? stats : StatsOfAny(x + begin, end - begin);
  };
  if (n <= kTaskElements) return stretch(0, n);
  // The number of blocks at a time is bounded, so that memory does not grow with n.
  std::array<TensorStats, 64> partial;
  const int64_t wave = static_cast<int64_t>(partial.size()) * kTaskElements;
  TensorStats stats;
  for (int64_t begin = 0; begin < n; begin += wave) {
    const int64_t tasks = CeilDiv(std::min(wave, n - begin), kTaskElements);
    ParallelFor(tasks, threads, [&](int64_t task) {
      const int64_t from = begin + task * kTaskElements;
      partial[static_cast<size_t>(task)] = stretch(from, std::min(n, from + kTaskElements));
    });
    for (int64_t i = 0; i < tasks; ++i) stats.Add(partial[static_cast<size_t>(i)]);
  }
  return stats;
}

}  // namespace

void TensorStats::Add(const TensorStats& other) {
  count += other.count;
  nonfinite += other.nonfinite;
  sum += other.sum;
  sum_squares += other.sum_squares;
  max_abs = std::max(max_abs, other.max_abs);
}

TensorStats ComputeStats(const float* x, int64_t n, int threads) {
  return StatsInStretches(HWY_DYNAMIC_DISPATCH(SelectStats)(), x, n, threads);
}

TensorStats ComputeStats(const uint16_t* x, int64_t n, int threads) {
  return StatsInStretches(HWY_DYNAMIC_DISPATCH(SelectBf16Stats)(), x, n, threads);
}

TensorStats ComputeStats(const SplitF32& x, int64_t n, int threads) {
  return StatsInStretches(HWY_DYNAMIC_DISPATCH(SelectSplitStats)(), x, n, threads);
}

}  // namespace plumb
#endif  // HWY_ONCE
