#include "runtime/ops/quantize.h"

#include <algorithm>
#include <limits>

#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/quantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// One group: returns its scale.
float QuantizeGroup(const float* from, int64_t n, int8_t* to) {
  const D d;
  const hn::Rebind<int8_t, D> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = n / lanes * lanes;
  const Tail<D> tail(d, whole < n ? n - whole : 1);
  V largest = hn::Zero(d);
  V poison = hn::Zero(d);  // 0 * x is NaN where x is not finite
  const auto look = [&](V v) HWY_ATTR {
    largest = hn::Max(largest, hn::Abs(v));
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  };
  for (int64_t i = 0; i < whole; i += lanes) look(hn::LoadU(d, from + i));
  if (whole < n) look(tail.Load(d, from + whole));
  if (hn::GetLane(hn::SumOfLanes(d, poison)) != 0) {
    std::fill_n(to, n, int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = hn::GetLane(hn::MaxOfLanes(d, largest)) / 127;
  if (scale == 0) {
    std::fill_n(to, n, int8_t{0});
    return 0;
  }
  const V divisor = hn::Set(d, scale), limit = hn::Set(d, 127);
  const auto quantize = [&](V v) HWY_ATTR {
    const V q = hn::Max(hn::Neg(limit), hn::Min(limit, hn::Div(v, divisor)));
    return hn::DemoteTo(d8, hn::NearestInt(q));
  };
  for (int64_t i = 0; i < whole; i += lanes)
    hn::StoreU(quantize(hn::LoadU(d, from + i)), d8, to + i);
  if (whole < n) {
    HWY_ALIGN int8_t last[hn::MaxLanes(D())];
    hn::Store(quantize(tail.Load(d, from + whole)), d8, last);
    std::copy_n(last, n - whole, to + whole);
  }
  return scale;
}

void DequantizeGroup(const int8_t* from, float scale, int64_t n, float* to) {
  const D d;
  const hn::Rebind<int8_t, D> d8;
  const hn::RebindToSigned<D> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V q = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from + i)));
    hn::StoreU(hn::Mul(q, hn::Set(d, scale)), d, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]) * scale;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(QuantizeGroup);
HWY_EXPORT(DequantizeGroup);

void QuantizeInt8(const float* from, int64_t rows, int64_t width, int threads, int8_t* to,
                  float* scales) {
  const auto quantize = HWY_DYNAMIC_DISPATCH(QuantizeGroup);
  const int64_t size = Int8GroupSize(width), groups = rows * Int8Groups(width);
  const int64_t tasks = TaskCount(groups, rows * width);
  ParallelFor(tasks, threads, [&](int64_t i) {
    const Range range = TaskRange(groups, tasks, i);
    for (int64_t g = range.begin; g < range.end; ++g) {
      scales[g] = quantize(from + g * size, size, to + g * size);
    }
  });
}

void DequantizeInt8(const int8_t* from, const float* scales, int64_t rows, int64_t width,
                    float* to) {
  const auto dequantize = HWY_DYNAMIC_DISPATCH(DequantizeGroup);
  const int64_t size = Int8GroupSize(width), groups = rows * Int8Groups(width);
  for (int64_t g = 0; g < groups; ++g) {
    dequantize(from + g * size, scales[g], size, to + g * size);
  }
}

}  // namespace plumb
#endif  // HWY_ONCE
