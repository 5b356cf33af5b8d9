// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/causal_conv_rows.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/causal_conv_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using ConvTag = hn::ScalableTag<float>;
using ConvVec = hn::Vec<ConvTag>;

template <class T>
void Convolve(const ConvolveArgs& args, int64_t begin, int64_t end) {
  const ConvTag d;
  const int64_t n = args.channels;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t inside = args.step < 0 ? t + 1 : args.rows - t;  // taps within the sequence
    const int64_t width = std::min(args.width, inside);
    const T* x = static_cast<const T*>(args.x) + t * n;
    T* y = static_cast<T*>(args.y) + (t - args.first) * n;
    ForVectors(d, 0, n, [&](const auto& io, int64_t e) HWY_ATTR {
      ConvVec sum = args.bias == nullptr ? hn::Zero(d) : io.Load(d, args.bias + e);
      for (int64_t i = 0; i < width; ++i) {
        sum = hn::MulAdd(io.Load(d, args.taps + i * n + e), io.Load(d, x + i * args.step * n + e),
                         sum);
      }
      io.Store(sum, d, y + e);
    });
  }
}

// Computes one vector of channels from e on, of which the first `count` are stored.
template <class T, class Io>
HWY_INLINE void AddUpChannels(const ConvolveGradArgs& args, const Io& io, int64_t e,
                              int64_t count) {
  constexpr int64_t kTaps = 4;  // taps that are summed at the same time
  const ConvTag d;
  const int64_t n = args.channels, rows = args.rows;
  for (int64_t i0 = 0; i0 < args.width; i0 += kTaps) {
    const int64_t taps = std::min(kTaps, args.width - i0);
    double total[kTaps][hn::MaxLanes(ConvTag())] = {};
    for (int64_t chunk = 0; chunk < args.sequences * rows; chunk += kConvChunk) {
      ConvVec sum[kTaps] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      const int64_t chunk_end = std::min(args.sequences * rows, chunk + kConvChunk);
      for (int64_t row = chunk; row < chunk_end; ++row) {
        const ConvVec dy = io.Load(d, static_cast<const T*>(args.dy) + row * n + e);
        // Tap i0 + k reads the row i0 + k before this one, if the sequence has it.
        const int64_t seen = std::min(taps, row % rows - i0 + 1);
        const T* x = static_cast<const T*>(args.x) + (row - i0) * n + e;
#pragma GCC unroll 4
        for (int64_t k = 0; k < kTaps; ++k) {
          if (k < seen) sum[k] = hn::MulAdd(dy, io.Load(d, x - k * n), sum[k]);
        }
      }
      for (int64_t k = 0; k < taps; ++k) {
        HWY_ALIGN float lanes[hn::MaxLanes(ConvTag())];
        hn::Store(sum[k], d, lanes);
        for (int64_t c = 0; c < count; ++c) total[k][c] += static_cast<double>(lanes[c]);
      }
    }
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t k = 0; k < taps; ++k) {
        args.dweight[(e + c) * args.width + i0 + k] = static_cast<float>(total[k][c]);
      }
    }
  }
}

template <class T>
void ConvolveGrad(const ConvolveGradArgs& args, int64_t begin, int64_t end) {
  const ConvTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ForVectors(d, begin, end, [&](const auto& io, int64_t e) HWY_ATTR {
    AddUpChannels<T>(args, io, e, std::min(lanes, end - e));
  });
}

ConvolveFn SelectConvolve(DType dtype) {
  return dtype == DType::kBF16 ? &Convolve<uint16_t> : &Convolve<float>;
}
ConvolveGradFn SelectConvolveGrad(DType dtype) {
  return dtype == DType::kBF16 ? &ConvolveGrad<uint16_t> : &ConvolveGrad<float>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectConvolve);
HWY_EXPORT(SelectConvolveGrad);

ConvolveFn ChooseConvolve(DType dtype) { return HWY_DYNAMIC_DISPATCH(SelectConvolve)(dtype); }
ConvolveGradFn ChooseConvolveGrad(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(SelectConvolveGrad)(dtype);
}

}  // namespace plumb
#endif  // HWY_ONCE
