// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemv/read_speed.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemv/read_speed.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the sum of n elements, so that the loads are not eliminated. It reads four streams, since
// a single one does not keep enough loads in flight.
float ReadAll(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t quarter = n / 4 / (2 * lanes) * (2 * lanes);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (int64_t i = 0; i < quarter; i += 2 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, x + quarter + i));
    s3 = hn::Add(s3, hn::LoadU(d, x + quarter + i + lanes));
    s4 = hn::Add(s4, hn::LoadU(d, x + 2 * quarter + i));
    s5 = hn::Add(s5, hn::LoadU(d, x + 2 * quarter + i + lanes));
    s6 = hn::Add(s6, hn::LoadU(d, x + 3 * quarter + i));
    s7 = hn::Add(s7, hn::LoadU(d, x + 3 * quarter + i + lanes));
  }
  const auto left = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  const auto right = hn::Add(hn::Add(s4, s5), hn::Add(s6, s7));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(left, right)));
  for (int64_t i = 4 * quarter; i < n; ++i) sum += x[i];
  return sum;
}

using ReadFn = float (*)(const float* x, int64_t n);
ReadFn SelectRead() { return &ReadAll; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectRead);

namespace {
constexpr int64_t kStretch = int64_t{1} << 20;  // number of floats: 4 MiB
}  // namespace

double MeasureReadSpeed(absl::Span<const float> data, int threads) {
  using Clock = std::chrono::steady_clock;
  const auto read = HWY_DYNAMIC_DISPATCH(SelectRead)();
  const int64_t n = static_cast<int64_t>(data.size());
  // There are many more tasks than threads, in case some threads start late.
  const int64_t tasks = std::max<int64_t>(threads, n / kStretch);
  std::vector<float> sums(static_cast<size_t>(tasks));
  const Clock::time_point start = Clock::now();
  ParallelFor(tasks, threads, [&](int64_t i) {
    const Range range = TaskRange(n, tasks, i);
    sums[static_cast<size_t>(i)] = read(data.data() + range.begin, range.end - range.begin);
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  // The sums are used, so that the compiler does not eliminate the reads.
  volatile float seen = 0;
  for (const float sum : sums) seen = sum;
  static_cast<void>(seen);
  return static_cast<double>(n) * sizeof(float) / seconds;
}

}  // namespace plumb
#endif  // HWY_ONCE
