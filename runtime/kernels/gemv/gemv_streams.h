// SPDX-License-Identifier: Apache-2.0
// Loop order of a GEMV (gemv.h) over interleaved streams, shared by its kernels.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_STREAMS_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_STREAMS_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/bf16.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/gemv/gemv.h"

namespace plumb {

// With several rows of x, a line of weights takes longer than the distance of the hardware
// prefetcher covers, so kernels prefetch each stream this many bytes ahead. Prefetching past the
// end of w is harmless. Always inlined, because gcc removes calls of functions that only prefetch.
inline constexpr int64_t kPrefetchDistance = 2048;
template <class W>
[[gnu::always_inline]] inline void PrefetchStream(const W* w) {
  __builtin_prefetch(reinterpret_cast<const char*>(w) + kPrefetchDistance);
}

// Stores y[at] = value, rounded to the type of y. The type is tested for each element, since
// separate kernels for both types would double the code.
inline void StoreY(const GemvArgs& g, float value, int64_t at) {
  if (g.out == DType::kBF16) {
    static_cast<uint16_t*>(g.y)[at] = Bf16FromFloat(value);
  } else {
    static_cast<float*>(g.y)[at] = value;
  }
}

// Vectors per loop iteration. With one, the loop overhead is noticeable when memory is fast.
inline constexpr int kGemvUnroll = 4;

// Computes columns j + s * stride of y for streams s in [0, streams). Tiles has
//   kMaxRows               maximum number of rows of x in a register tile
//   WeightRows(rows)       rows of w in a register tile with `rows` rows of x: 4, 2 or 1
//   Multiply(g, i, rows, j, weight_rows, stride)
//                          computes rows [i, i + rows) of weight_rows columns j, j + stride, ...
template <class Tiles>
void MultiplyColumns(const GemvArgs& g, int64_t j, int64_t streams, int64_t stride) {
  // Passes of nearly equal height, since 5 + 4 rows are faster than 8 + 1. The rows of w stay in
  // the cache between passes.
  const int64_t passes = CeilDiv(g.m, Tiles::kMaxRows);
  const int64_t height = CeilDiv(g.m, passes);
  const int64_t together = Tiles::WeightRows(height);
  for (int64_t s = 0; s < streams;) {
    const int64_t left = streams - s;
    const int64_t weight_rows = left >= together ? together : left >= 2 && together == 4 ? 2 : 1;
    for (int64_t i = 0; i < g.m; i += height) {
      Tiles::Multiply(g, i, std::min(height, g.m - i), j + s * stride, weight_rows, stride);
    }
    s += weight_rows;
  }
}

// Implements GemvFn.
template <class Tiles>
void MultiplyStreams(const GemvArgs& g, int64_t begin, int64_t end) {
  const int64_t stride = g.n / kGemvStreams, rest = g.n - kGemvStreams * stride;
  for (int64_t j = begin; j < end; ++j) {
    if (g.m == 1) {  // a constant makes rows of 768 from the cache 2 to 15 % faster
      Tiles::template Multiply<1>(g, 0, 1, j, kGemvStreams, stride);
    } else {
      MultiplyColumns<Tiles>(g, j, kGemvStreams, stride);
    }
  }
  if (end == stride) MultiplyColumns<Tiles>(g, kGemvStreams * stride, rest, 1);
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_STREAMS_H_
