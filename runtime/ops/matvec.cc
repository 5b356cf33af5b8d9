#include "runtime/ops/matvec.h"

#include <algorithm>

#include "runtime/base/bf16.h"
#include "runtime/ops/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/matvec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/simd_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kLine = 64;  // bytes of a cache line

// Rows of x that are multiplied in one pass over rows of w, and rows of w at once: their sums, a
// vector each, must fit the registers (32 with AVX-512, else 16) beside one vector of each row.
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
HWY_INLINE V LoadWeights(const int8_t* w) {
  const D d;
  const hn::RebindToSigned<D> di;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, D>(), w)));
}
template <class W>
HWY_INLINE V LoadWeights(const W* w, int64_t count) {
  HWY_ALIGN W lanes[kLanes] = {};
  std::copy_n(w, count, lanes);
  return LoadWeights(lanes);
}

HWY_INLINE void Put(float value, float* y) { *y = value; }
HWY_INLINE void Put(float value, uint16_t* y) { *y = Bf16FromFloat(value); }

// Elements [j, j + kR) of kM rows of y. `ahead` is prefetched in passing, from its beginning on, as
// many bytes as are read of w.
template <class W, class Y, int kM, int kR>
HWY_INLINE void Tile(const MatvecArgs& g, const float* x, Y* y, int64_t j, const char* ahead) {
  const D d;
  const int64_t k = g.k;
  const W* w = static_cast<const W*>(g.w) + j * k;
  V sum[kM][kR];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) sum[i][r] = hn::Zero(d);
  }
  const auto add = [&](const V(&weights)[kR], const auto& load, int64_t p) HWY_ATTR {
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) {
      const V row = load(x + i * k + p);
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) sum[i][r] = hn::MulAdd(weights[r], row, sum[i][r]);
    }
  };
  const auto load_x = [](const float* from) HWY_ATTR { return hn::LoadU(D(), from); };

  constexpr int64_t kPerLine = std::max<int64_t>(kLanes, kLine / static_cast<int64_t>(sizeof(W)));
  constexpr bool kInt8 = sizeof(W) == 1;
  const int64_t group = kInt8 ? Int8GroupSize(k) : k;
  const int64_t groups = kInt8 ? k / group : 1;
  const float* scales = kInt8 ? g.scales + j * groups : nullptr;
  int64_t done = 0;
  if constexpr (kInt8) {
    // A group of one cache line: its weights, as floats, are held while all rows of x pass by, and
    // it is the group's sum that is scaled, not each weight.
    constexpr int64_t kVectors = kInt8Group / kLanes;
    for (; group == kInt8Group && done < groups; ++done) {
      const int64_t p = done * kInt8Group;
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) {
        __builtin_prefetch(ahead);
        ahead += kLine;
        V weights[kVectors];
#pragma GCC unroll 16
        for (int64_t l = 0; l < kVectors; ++l) weights[l] = LoadWeights(w + r * k + p + l * kLanes);
        const V scale = hn::Set(d, scales[r * groups + done]);
#pragma GCC unroll 8
        for (int i = 0; i < kM; ++i) {
          const float* const row = x + i * k + p;
          V part = hn::Mul(weights[0], hn::LoadU(d, row));
#pragma GCC unroll 16
          for (int64_t l = 1; l < kVectors; ++l) {
            part = hn::MulAdd(weights[l], hn::LoadU(d, row + l * kLanes), part);
          }
          sum[i][r] = hn::MulAdd(part, scale, sum[i][r]);
        }
      }
    }
  }
  for (int64_t q = done; q < groups; ++q) {
    V scale[kR];
    if constexpr (kInt8) {
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) scale[r] = hn::Set(d, scales[r * groups + q]);
    }
    const auto scaled = [&](V weights, int r) HWY_ATTR {
      if constexpr (kInt8) {
        return hn::Mul(weights, scale[r]);
      } else {
        return weights;
      }
    };
    const int64_t begin = q * group, end = begin + group;
    int64_t p = begin;
    for (; p + kPerLine <= end; p += kPerLine) {
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) __builtin_prefetch(ahead + r * kLine);
      ahead += kR * kLine;
#pragma GCC unroll 4
      for (int64_t l = 0; l < kPerLine; l += kLanes) {
        V weights[kR];
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) weights[r] = scaled(LoadWeights(w + r * k + p + l), r);
        add(weights, load_x, p + l);
      }
    }
    for (; p + kLanes <= end; p += kLanes) {
      V weights[kR];
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) weights[r] = scaled(LoadWeights(w + r * k + p), r);
      add(weights, load_x, p);
    }
    if (p < end) {
      const Tail<D> tail(d, end - p);
      V weights[kR];
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) weights[r] = scaled(LoadWeights(w + r * k + p, end - p), r);
      add(
          weights, [&](const float* from) HWY_ATTR { return tail.Load(d, from); }, p);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      const float total = hn::GetLane(hn::SumOfLanes(d, sum[i][r]));
      Put(g.bias == nullptr ? total : total + g.bias[j + r], y + i * g.ldy + j + r);
    }
  }
}

template <class W, class Y, int kR>
void TileOf(const MatvecArgs& g, int64_t rows, const float* x, Y* y, int64_t j, const char* ahead) {
  static_assert(kMaxRows == 8);
  switch (rows) {
    case 1:
      return Tile<W, Y, 1, kR>(g, x, y, j, ahead);
    case 2:
      return Tile<W, Y, 2, kR>(g, x, y, j, ahead);
    case 3:
      return Tile<W, Y, 3, std::min(kR, WeightRows(3))>(g, x, y, j, ahead);
    case 4:
      return Tile<W, Y, 4, std::min(kR, WeightRows(4))>(g, x, y, j, ahead);
    case 5:
      return Tile<W, Y, 5, std::min(kR, WeightRows(5))>(g, x, y, j, ahead);
    case 6:
      return Tile<W, Y, 6, std::min(kR, WeightRows(6))>(g, x, y, j, ahead);
    case 7:
      return Tile<W, Y, 7, std::min(kR, WeightRows(7))>(g, x, y, j, ahead);
    default:
      return Tile<W, Y, 8, std::min(kR, WeightRows(8))>(g, x, y, j, ahead);
  }
}

template <class W, class Y>
void MultiplyRows(const MatvecArgs& g, int64_t begin, int64_t end) {
  // Passes of nearly equal height: 9 rows are better as 5 + 4 than as 8 + 1. The rows of w stay in
  // the cache from one to the next.
  const int64_t passes = (g.m + kMaxRows - 1) / kMaxRows;
  const int64_t height = (g.m + passes - 1) / passes;
  const int64_t together = WeightRows(static_cast<int>(height));
  Y* const y = static_cast<Y*>(g.y);
  for (int64_t j = begin; j < end;) {
    const int64_t left = end - j;
    const int64_t rows = left >= together ? together : left >= 2 && together == 4 ? 2 : 1;
    // The rows after these; at the end of w, what lies behind it: likely the next weights.
    const char* const ahead =
        reinterpret_cast<const char*>(static_cast<const W*>(g.w) + (j + rows) * g.k);
    for (int64_t i = 0; i < g.m; i += height) {
      const int64_t m = std::min(height, g.m - i);
      const float* const x = g.x + i * g.k;
      if (rows == 4) {
        TileOf<W, Y, 4>(g, m, x, y + i * g.ldy, j, ahead);
      } else if (rows == 2) {
        TileOf<W, Y, 2>(g, m, x, y + i * g.ldy, j, ahead);
      } else {
        TileOf<W, Y, 1>(g, m, x, y + i * g.ldy, j, ahead);
      }
    }
    j += rows;
  }
}

MatvecFn Select(DType weights, DType out) {
  const bool half = out == DType::kBF16;
  switch (weights) {
    case DType::kBF16:
      return half ? &MultiplyRows<uint16_t, uint16_t> : &MultiplyRows<uint16_t, float>;
    case DType::kI8:
      return half ? &MultiplyRows<int8_t, uint16_t> : &MultiplyRows<int8_t, float>;
    default:
      return half ? &MultiplyRows<float, uint16_t> : &MultiplyRows<float, float>;
  }
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

MatvecFn SelectMatvec(DType weights, DType out) {
  return HWY_DYNAMIC_DISPATCH(Select)(weights, out);
}

void WidenFromBf16(const uint16_t* x, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(x, n, to);
}

namespace {

// The tasks of one thread follow each other in memory, and are so short that threads end together.
int64_t CountTasks(int64_t m, int64_t n, int64_t k, DType weights) {
  if (n * k * (m + 3) < int64_t{1} << 18) return 1;
  constexpr int64_t kTaskBytes = 16 << 10;
  return std::min<int64_t>({2048, (n + 3) / 4, n * k * SizeOf(weights) / kTaskBytes + 1});
}

}  // namespace

Matvec::Matvec(int64_t m, int64_t n, int64_t k, DType x, DType weights, DType out)
    : m_(m),
      n_(n),
      k_(k),
      tasks_(CountTasks(m, n, k, weights)),
      widen_(x == DType::kBF16),
      multiply_(SelectMatvec(weights, out)) {}

MatvecArgs Matvec::Prepare(const Operands& operands, void* scratch) const {
  const float* x = static_cast<const float*>(operands.x);
  if (widen_) {
    float* const widened = static_cast<float*>(scratch);
    WidenFromBf16(static_cast<const uint16_t*>(operands.x), m_ * k_, widened);
    x = widened;
  }
  return {m_, n_, k_, x, operands.w, operands.scales, operands.bias, operands.y, n_};
}

}  // namespace plumb
#endif  // HWY_ONCE
