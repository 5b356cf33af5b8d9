// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemv/gemv.h"

#include <algorithm>
#include <type_traits>

#include "runtime/base/bf16.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/gemv/gemv_job.h"
#include "runtime/kernels/simd/cpu_features.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemv/gemv.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/fold-inl.h"
#include "runtime/kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));

// Register tile: rows of x by rows of w. Its sums, a vector each, and one vector of each row must
// fit the registers (32 with AVX-512, else 16).
#if HWY_TARGET == HWY_AVX3
constexpr int kMaxRows = 6;
constexpr int WeightRows(int /*rows*/) { return 4; }
#else
constexpr int kMaxRows = 8;
constexpr int WeightRows(int rows) { return rows <= 2 ? 4 : rows <= 5 ? 2 : 1; }
#endif

// Operands of a product, and how a vector of each is multiplied.
struct F32Terms {
  using X = float;
  using W = float;
  static constexpr int64_t kTerms = kLanes;  // terms of a vector
  static HWY_INLINE V LoadX(const float* x) { return hn::LoadU(D(), x); }
  static HWY_INLINE V LoadW(const float* w) { return hn::LoadU(D(), w); }
  static HWY_INLINE V MulAdd(V w, V x, V sum) { return hn::MulAdd(w, x, sum); }
};
struct WidenedTerms : F32Terms {
  using W = uint16_t;
  static HWY_INLINE V LoadW(const uint16_t* w) { return LoadFloats(D(), w); }
};
#if HWY_TARGET == HWY_AVX3
// bf16x2 by AVX512_BF16, which Highway lacks. Denormal operands and sums are zero.
struct PairTerms {
  using X = uint16_t;
  using W = uint16_t;
  static constexpr int64_t kTerms = 2 * kLanes;
  static HWY_INLINE V LoadX(const uint16_t* x) {
    return hn::BitCast(D(), hn::LoadU(hn::Repartition<uint16_t, D>(), x));
  }
  static HWY_INLINE V LoadW(const uint16_t* w) { return LoadX(w); }
  static HWY_INLINE V MulAdd(V w, V x, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
    return sum;
  }
};
#endif

// Stores y[at] = value, rounded to the type of y. The type is tested for each element, since
// separate kernels for both types would double the code.
void StoreY(const GemvArgs& g, float value, int64_t at) {
  if (g.out == DType::kBF16) {
    static_cast<uint16_t*>(g.y)[at] = Bf16FromFloat(value);
  } else {
    static_cast<float*>(g.y)[at] = value;
  }
}

// Computes rows [i, i + kM) of columns j, j + stride, ... (kR of them) of y.
template <class T, int kM, int kR>
void Tile(const GemvArgs& g, int64_t i, int64_t j, int64_t stride) {
  using X = typename T::X;
  using W = typename T::W;
  constexpr int64_t kTerms = T::kTerms;
  const D d;
  const int64_t k = g.k;
  const X* const x = static_cast<const X*>(g.x) + i * k;
  const W* w[kR];
  V sum[kM][kR];
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) {
    w[r] = static_cast<const W*>(g.w) + (j + r * stride) * k;
#pragma GCC unroll 8
    for (int a = 0; a < kM; ++a) sum[a][r] = hn::Zero(d);
  }
  // Functors, since a pointer to an always-inline function cannot be called without optimization.
  const auto load_w = [](const W* from) HWY_ATTR { return T::LoadW(from); };
  const auto load_x = [](const X* from) HWY_ATTR { return T::LoadX(from); };
  const auto multiply = [&](const auto& of_w, const auto& of_x, int64_t p) HWY_ATTR {
    V weights[kR];
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) weights[r] = of_w(w[r] + p);
#pragma GCC unroll 8
    for (int a = 0; a < kM; ++a) {
      const V row = of_x(x + a * k + p);
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) sum[a][r] = T::MulAdd(weights[r], row, sum[a][r]);
    }
  };

  // With several rows of x, a line of weights takes longer than the distance of the hardware
  // prefetchers covers. Each pass over a row of w prefetches a part of the next row of its stream,
  // so that memory is never idle. Prefetching past the end of w is harmless.
  constexpr int64_t kBytes = sizeof(W);
  int64_t ahead = k * kBytes + i * k * kBytes / g.m;
  const int64_t step = kTerms * kBytes * kM / g.m;
  // Vectors per loop iteration. With one, the loop overhead is noticeable when memory is fast.
  constexpr int kUnroll = 4;
  int64_t p = 0;
  for (; p + kUnroll * kTerms <= k; p += kUnroll * kTerms) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
#pragma GCC unroll 4
      for (int r = 0; r < kR && kM > 1; ++r) {
        __builtin_prefetch(reinterpret_cast<const char*>(w[r]) + ahead, 0, 2);
      }
      ahead += step;
      multiply(load_w, load_x, p + u * kTerms);
    }
  }
  for (; p + kTerms <= k; p += kTerms) multiply(load_w, load_x, p);
  if (p < k) {
    // Copies the last terms, followed by zeros.
    const auto load = [&](const auto* from, const auto& of) HWY_ATTR {
      HWY_ALIGN std::remove_const_t<std::remove_reference_t<decltype(*from)>> terms[kTerms] = {};
      std::copy_n(from, k - p, terms);
      return of(terms);
    };
    multiply([&](const W* from) HWY_ATTR { return load(from, load_w); },
             [&](const X* from) HWY_ATTR { return load(from, load_x); }, p);
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

template <class T, int kM = kMaxRows>
void MultiplyTile(const GemvArgs& g, int64_t i, int64_t rows, int64_t j, int64_t weight_rows,
                  int64_t stride) {
  if constexpr (kM > 1) {
    if (rows < kM) return MultiplyTile<T, kM - 1>(g, i, rows, j, weight_rows, stride);
  }
  constexpr int kMax = WeightRows(kM);
  if (weight_rows == 4) return Tile<T, kM, kMax>(g, i, j, stride);
  if (weight_rows == 2) return Tile<T, kM, std::min(2, kMax)>(g, i, j, stride);
  Tile<T, kM, 1>(g, i, j, stride);
}

// Computes columns j + s * stride of y for streams s in [0, streams).
template <class T>
void MultiplyColumns(const GemvArgs& g, int64_t j, int64_t streams, int64_t stride) {
  // Passes of nearly equal height, since 5 + 4 rows are faster than 8 + 1. The rows of w stay in
  // the cache between passes.
  const int64_t height = CeilDiv(g.m, CeilDiv(g.m, int64_t{kMaxRows}));
  const int64_t together = WeightRows(static_cast<int>(height));
  for (int64_t s = 0; s < streams;) {
    const int64_t left = streams - s;
    const int64_t weight_rows = left >= together ? together : left >= 2 && together == 4 ? 2 : 1;
    for (int64_t i = 0; i < g.m; i += height) {
      MultiplyTile<T>(g, i, std::min(height, g.m - i), j + s * stride, weight_rows, stride);
    }
    s += weight_rows;
  }
}

// Implements GemvFn.
template <class T>
void Multiply(const GemvArgs& g, int64_t begin, int64_t end) {
  const int64_t stride = g.n / kGemvStreams, rest = g.n - kGemvStreams * stride;
  for (int64_t j = begin; j < end; ++j) {
    if (g.m == 1) {  // a constant makes rows of 768 from the cache 2 to 15 % faster
      MultiplyTile<T, 1>(g, 0, 1, j, kGemvStreams, stride);
    } else {
      MultiplyColumns<T>(g, j, kGemvStreams, stride);
    }
  }
  if (end == stride) MultiplyColumns<T>(g, kGemvStreams * stride, rest, 1);
}

TransposeFn SelectPackTransposed() { return &PackTransposed; }

GemvFn Select(DType weights, [[maybe_unused]] bool pairs) {
#if HWY_TARGET == HWY_AVX3
  if (pairs) return &Multiply<PairTerms>;
#endif
  return weights == DType::kBF16 ? &Multiply<WidenedTerms> : &Multiply<F32Terms>;
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
HWY_EXPORT(SelectPackTransposed);
HWY_EXPORT(Widen);

GemvFn SelectGemv(DType weights, bool pairs) {
  return HWY_DYNAMIC_DISPATCH(Select)(weights, pairs);
}

void WidenFromBf16(const uint16_t* x, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(x, n, to);
}

TransposeFn SelectTranspose() { return HWY_DYNAMIC_DISPATCH(SelectPackTransposed)(); }

Gemv::Gemv(int64_t m, int64_t n, int64_t k, DType x, DType weights, DType out, bool may_pack)
    : m_(m), n_(n), k_(k), out_(out) {
  const bool bf16 = x == DType::kBF16 && weights == DType::kBF16;
  const bool pairs = bf16 && UsesBf16Pairs();
  packs_ = may_pack && bf16 && UsesAmx() && k % 32 == 0 && n >= kAmxStreams;
  widens_ = x == DType::kBF16 && !pairs && !packs_;
  multiply_ = packs_ ? AmxBf16Gemv() : SelectGemv(weights, pairs);
  units_ = n / (packs_ ? kAmxStreams : kGemvStreams);
  // With AMX, sums are stored 16 columns at a time. Half as many keep more threads busy.
  const int64_t columns = !packs_ ? 1 : units_ < 256 ? 8 : 16;
  tasks_ = CountGemvTasks(m, n * k, n * k * SizeOf(weights), CeilDiv(units_, columns));
}

GemvArgs Gemv::Prepare(const Operands& operands, int threads, void* scratch) const {
  const auto* const x = static_cast<const uint16_t*>(operands.x);
  if (packs_) PackAmxRows(x, m_, k_, threads, scratch);
  if (widens_) WidenFromBf16(x, m_ * k_, static_cast<float*>(scratch));
  return {m_,         n_,  k_, packs_ || widens_ ? scratch : operands.x, operands.w, operands.bias,
          operands.y, out_};
}

}  // namespace plumb
#endif  // HWY_ONCE
