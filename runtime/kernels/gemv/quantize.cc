// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemv/quantize.h"

#include <algorithm>
#include <limits>

#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemv/quantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Quantizes one group of n <= kInt8Group elements, padded with zeros; returns its scale.
template <class T>
float QuantizeGroup(const float* from, int64_t n, T* to) {
  const D d;
  const hn::Rebind<T, D> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = n / lanes * lanes;
  const Tail<D> tail(d, whole < n ? n - whole : 1);
  V largest = hn::Zero(d);
  V poison = hn::Zero(d);  // becomes NaN if an element is not finite, since 0 * x is NaN
  const auto look = [&](V v) HWY_ATTR {
    largest = hn::Max(largest, hn::Abs(v));
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  };
  for (int64_t i = 0; i < whole; i += lanes) look(hn::LoadU(d, from + i));
  if (whole < n) look(tail.Load(d, from + whole));
  if (hn::GetLane(hn::SumOfLanes(d, poison)) != 0) {
    std::fill_n(to, kInt8Group, T{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  constexpr float kMax = std::numeric_limits<T>::max();
  const float scale = hn::GetLane(hn::MaxOfLanes(d, largest)) / kMax;
  if (scale == 0) {
    std::fill_n(to, kInt8Group, T{0});
    return 0;
  }
  const V divisor = hn::Set(d, scale), limit = hn::Set(d, kMax);
  const auto quantize = [&](V v) HWY_ATTR {
    const V q = hn::Max(hn::Neg(limit), hn::Min(limit, hn::Div(v, divisor)));
    return hn::DemoteTo(narrow, hn::NearestInt(q));
  };
  for (int64_t i = 0; i < whole; i += lanes) {
    hn::StoreU(quantize(hn::LoadU(d, from + i)), narrow, to + i);
  }
  if (whole < n) {
    HWY_ALIGN T last[hn::MaxLanes(D())];
    hn::Store(quantize(tail.Load(d, from + whole)), narrow, last);
    std::copy_n(last, n - whole, to + whole);
  }
  std::fill(to + n, to + kInt8Group, T{0});
  return scale;
}

// Quantizes one tile from rows that are `width` apart.
void QuantizeTile(const float* from, int64_t rows, int64_t width, int64_t n, int8_t* to,
                  float* scales) {
  int8_t group[kInt8Group];
  std::fill_n(to, kInt8TileElements, int8_t{0});
  std::fill_n(scales, kInt8TileRows, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    scales[r] = QuantizeGroup(from + r * width, n, group);
    for (int64_t i = 0; i < kInt8Group; ++i) to[Int8ElementAt(r, i, 1)] = group[i];
  }
}

void QuantizeRow(const float* from, int64_t width, int16_t* to, float* scales, int64_t pitch) {
  for (int64_t i = 0; i < width; i += kInt8Group) {
    scales[i / kInt8Group * pitch] =
        QuantizeGroup(from + i, std::min(kInt8Group, width - i), to + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(QuantizeTile);
HWY_EXPORT(QuantizeRow);

void QuantizeInt8(const float* from, int64_t rows, int64_t width, int threads, int8_t* to,
                  float* scales) {
  const auto quantize = HWY_DYNAMIC_DISPATCH(QuantizeTile);
  const int64_t groups = Int8Groups(width), tiles = Int8Blocks(rows) * groups;
  const int64_t tasks = TaskCount(tiles, rows * width);
  ParallelFor(tasks, threads, [&](int64_t task) {
    const Range range = TaskRange(tiles, tasks, task);
    for (int64_t t = range.begin; t < range.end; ++t) {
      const int64_t row = t / groups * kInt8TileRows, i = t % groups * kInt8Group;
      quantize(from + row * width + i, std::min(kInt8TileRows, rows - row), width,
               std::min(kInt8Group, width - i), to + t * kInt8TileElements,
               scales + t * kInt8TileRows);
    }
  });
}

void QuantizeInt16(const float* from, int64_t rows, int64_t width, int16_t* to, float* scales,
                   int64_t pitch) {
  const auto quantize = HWY_DYNAMIC_DISPATCH(QuantizeRow);
  const int64_t groups = Int8Groups(width);
  for (int64_t r = 0; r < rows; ++r) {
    quantize(from + r * width, width, to + r * groups * kInt8Group, scales + r, pitch);
  }
}

void ReadInt8Row(const int8_t* from, const float* scales, int64_t row, int64_t width, float* to) {
  const int64_t groups = Int8Groups(width);
  for (int64_t i = 0; i < width; ++i) {
    to[i] = static_cast<float>(from[Int8ElementAt(row, i, groups)]) *
            scales[Int8ScaleAt(row, i, groups)];
  }
}

}  // namespace plumb
#endif  // HWY_ONCE
