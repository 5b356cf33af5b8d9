// The order in which a product of a few rows (gemv.h) goes through its columns, for its kernels.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_STREAMS_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_STREAMS_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/kernels/gemv/gemv.h"

namespace plumb {

// With several rows of x a line of weights is worked on for longer than the processor looks ahead
// by itself: kernels ask for what a band needs this many bytes later. Beyond the end of w it does
// no harm. Always inlined: to gcc a function that only prefetches has no effect.
inline constexpr int64_t kBandBytesAhead = 2048;
template <class W>
[[gnu::always_inline]] inline void AskInBand(const W* w) {
  __builtin_prefetch(reinterpret_cast<const char*>(w) + kBandBytesAhead);
}

// Vectors that kernels multiply between two branches: with one, rows were slower to follow each
// other where memory is fast.
inline constexpr int kGemvUnroll = 4;

// Columns j + b * band of y, for bands b of [0, bands). Tiles has
//   kMaxRows               rows of x that are multiplied in one pass over rows of w
//   WeightRows(rows)       rows of w at once beside so many: 4, 2 or 1
//   Multiply(g, i, rows, j, weight_rows, band)
//                          rows [i, i + rows) of columns j, j + band, ...: weight_rows of them
template <class Tiles>
void MultiplyColumns(const GemvArgs& g, int64_t j, int64_t bands, int64_t band) {
  // Passes of nearly equal height: 9 rows are better as 5 + 4 than as 8 + 1. The rows of w stay in
  // the cache from one to the next.
  const int64_t passes = CeilDiv(g.m, Tiles::kMaxRows);
  const int64_t height = CeilDiv(g.m, passes);
  const int64_t together = Tiles::WeightRows(height);
  for (int64_t b = 0; b < bands;) {
    const int64_t left = bands - b;
    const int64_t weight_rows = left >= together ? together : left >= 2 && together == 4 ? 2 : 1;
    for (int64_t i = 0; i < g.m; i += height) {
      Tiles::Multiply(g, i, std::min(height, g.m - i), j + b * band, weight_rows, band);
    }
    b += weight_rows;
  }
}

// A GemvFn.
template <class Tiles>
void MultiplyBands(const GemvArgs& g, int64_t begin, int64_t end) {
  const int64_t band = g.n / kGemvBands, rest = g.n - kGemvBands * band;
  for (int64_t j = begin; j < end; ++j) {
    if (g.m == 1) {  // known here: rows of 768 from the cache are 2 to 15 % quicker
      Tiles::template Multiply<1>(g, 0, 1, j, kGemvBands, band);
    } else {
      MultiplyColumns<Tiles>(g, j, kGemvBands, band);
    }
  }
  if (end == band) MultiplyColumns<Tiles>(g, kGemvBands * band, rest, 1);
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_STREAMS_H_
