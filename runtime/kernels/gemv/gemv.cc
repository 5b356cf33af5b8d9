// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemv/gemv.h"

#include <algorithm>

#include "runtime/base/bf16.h"
#include "runtime/kernels/gemv/gemv_job.h"
#include "runtime/kernels/gemv/gemv_streams.h"
#include "runtime/kernels/simd/cpu_features.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemv/gemv.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));

// Register tile: rows of x by rows of w. Its sums, a vector each, and one vector of each row must
// fit the registers (32 with AVX-512, else 16).
constexpr int kMaxRows = 8;
constexpr int WeightRows(int rows) {
#if HWY_TARGET == HWY_AVX3
  return rows <= 5 ? 4 : 2;
#else
  return rows <= 2 ? 4 : rows <= 5 ? 2 : 1;
#endif
}

HWY_INLINE V LoadWeights(const float* w) { return hn::LoadU(D(), w); }
HWY_INLINE V LoadWeights(const uint16_t* w) { return LoadFloats(D(), w); }
template <class W>
HWY_INLINE V LoadWeights(const W* w, int64_t count) {
  HWY_ALIGN W lanes[kLanes] = {};
  std::copy_n(w, count, lanes);
  return LoadWeights(lanes);
}

// Computes rows [i, i + kM) of columns j, j + stride, ... (kR of them) of y.
template <class W, int kM, int kR>
void Tile(const GemvArgs& g, int64_t i, int64_t j, int64_t stride) {
  const D d;
  const int64_t k = g.k;
  const float* const x = static_cast<const float*>(g.x) + i * k;
  const W* w[kR];
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) w[r] = static_cast<const W*>(g.w) + (j + r * stride) * k;
  V sum[kM][kR];
#pragma GCC unroll 8
  for (int a = 0; a < kM; ++a) {
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) sum[a][r] = hn::Zero(d);
  }
  const auto add = [&](const V(&weights)[kR], const auto& load, int64_t p) HWY_ATTR {
#pragma GCC unroll 8
    for (int a = 0; a < kM; ++a) {
      const V row = load(x + a * k + p);
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) sum[a][r] = hn::MulAdd(weights[r], row, sum[a][r]);
    }
  };
  const auto load_x = [](const float* from) HWY_ATTR { return hn::LoadU(D(), from); };

  int64_t p = 0;
  const auto multiply = [&](int64_t at) HWY_ATTR {
#pragma GCC unroll 4
    for (int r = 0; r < kR && kM > 1; ++r) PrefetchStream(w[r] + at);
    V weights[kR];
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) weights[r] = LoadWeights(w[r] + at);
    add(weights, load_x, at);
  };
  for (; p + kGemvUnroll * kLanes <= k; p += kGemvUnroll * kLanes) {
#pragma GCC unroll 4
    for (int u = 0; u < kGemvUnroll; ++u) multiply(p + u * kLanes);
  }
  for (; p + kLanes <= k; p += kLanes) multiply(p);
  if (p < k) {
    const Tail<D> tail(d, k - p);
    V weights[kR];
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) weights[r] = LoadWeights(w[r] + p, k - p);
    add(
        weights, [&](const float* from) HWY_ATTR { return tail.Load(d, from); }, p);
  }
#pragma GCC unroll 8
  for (int a = 0; a < kM; ++a) {
    // Four sums are folded at once; the order of additions of each does not depend on the others.
    const auto of = [&](int r) HWY_ATTR { return r < kR ? sum[a][r] : hn::Zero(d); };
    float totals[4];
    FoldLanes(d, of(0), of(1), of(2), of(3), Sum(), totals);
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      const int64_t at = j + r * stride;
      StoreY(g, g.bias == nullptr ? totals[r] : totals[r] + g.bias[at], (i + a) * g.n + at);
    }
  }
}

template <class W>
struct Tiles {
  static constexpr int64_t kMaxRows = plumb::HWY_NAMESPACE::kMaxRows;
  static int64_t WeightRows(int64_t rows) {
    return plumb::HWY_NAMESPACE::WeightRows(static_cast<int>(rows));
  }

  template <int kM = static_cast<int>(kMaxRows)>
  static void Multiply(const GemvArgs& g, int64_t i, int64_t rows, int64_t j, int64_t weight_rows,
                       int64_t stride) {
    if constexpr (kM > 1) {
      if (rows < kM) return Multiply<kM - 1>(g, i, rows, j, weight_rows, stride);
    }
    constexpr int kMax = plumb::HWY_NAMESPACE::WeightRows(kM);
    if (weight_rows == 4) return Tile<W, kM, kMax>(g, i, j, stride);
    if (weight_rows == 2) return Tile<W, kM, std::min(2, kMax)>(g, i, j, stride);
    Tile<W, kM, 1>(g, i, j, stride);
  }
};

GemvFn Select(DType weights) {
  return weights == DType::kBF16 ? &MultiplyStreams<Tiles<uint16_t>>
                                 : &MultiplyStreams<Tiles<float>>;
}

void Widen(const uint16_t* x, int64_t n, float* to) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(LoadFloats(d, x + i), d, to + i);
  if (i == n) return;
  const FloatTail<D> tail(d, n - i);
  tail.Store(tail.Load(d, x + i), d, to + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);
HWY_EXPORT(Widen);

GemvFn SelectGemv(DType weights) { return HWY_DYNAMIC_DISPATCH(Select)(weights); }

void WidenFromBf16(const uint16_t* x, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(x, n, to);
}

Gemv::Gemv(int64_t m, int64_t n, int64_t k, DType x, DType weights, DType out)
    : m_(m),
      n_(n),
      k_(k),
      tasks_(CountGemvTasks(m, n * k, n * k * SizeOf(weights), n / kGemvStreams)),
      out_(out),
      bf16x2_(x == DType::kBF16 && weights == DType::kBF16 && UsesBf16Pairs()),
      widen_(x == DType::kBF16 && !bf16x2_),
      multiply_(bf16x2_ ? FastBf16Gemv() : SelectGemv(weights)) {}

GemvArgs Gemv::Prepare(const Operands& operands, void* scratch) const {
  const void* x = operands.x;
  if (widen_) {
    float* const widened = static_cast<float*>(scratch);
    WidenFromBf16(static_cast<const uint16_t*>(operands.x), m_ * k_, widened);
    x = widened;
  }
  return {m_, n_, k_, x, operands.w, operands.bias, operands.y, out_};
}

}  // namespace plumb
#endif  // HWY_ONCE
