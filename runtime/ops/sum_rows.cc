// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/sum_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/sum_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Computes y = the sum of kRows rows of x or, with kAdd, y += it. Several rows at a time, so that
// memory is read in a few sequential streams, and y is read and written rarely.
template <int kRows, bool kAdd, class T>
void AddRows(const T* x, int64_t n, int64_t stride, float* y) {
  const D d;
  ForVectors(d, 0, n, [=](const auto& io, int64_t j) HWY_ATTR {
    V sum = kAdd ? io.Load(d, y + j) : io.Load(d, x + j);
    for (int k = kAdd ? 0 : 1; k < kRows; ++k) sum = hn::Add(sum, io.Load(d, x + k * stride + j));
    io.Store(sum, d, y + j);
  });
}

constexpr int kTogether = 8;

template <class T>
void Add(const void* from, int64_t rows, int64_t n, int64_t stride, float* y) {
  const T* x = static_cast<const T*>(from);
  int64_t i = 0;
  for (; i + kTogether <= rows; i += kTogether) {
    AddRows<kTogether, true>(x + i * stride, n, stride, y);
  }
  for (; i < rows; ++i) AddRows<1, true>(x + i * stride, n, stride, y);
}

template <class T>
void Sum(const void* from, int64_t rows, int64_t n, int64_t stride, float* y) {
  const T* x = static_cast<const T*>(from);
  const int64_t first = rows >= kTogether ? kTogether : 1;
  if (rows >= kTogether) {
    AddRows<kTogether, false>(x, n, stride, y);
  } else {
    AddRows<1, false>(x, n, stride, y);
  }
  Add<T>(x + first * stride, rows - first, n, stride, y);
}

SumRowsFns Select(DType dtype) {
  if (dtype == DType::kBF16) return {&Sum<uint16_t>, &Add<uint16_t>};
  return {&Sum<float>, &Add<float>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

SumRowsFns SelectSumRows(DType dtype) { return HWY_DYNAMIC_DISPATCH(Select)(dtype); }

}  // namespace plumb
#endif  // HWY_ONCE
