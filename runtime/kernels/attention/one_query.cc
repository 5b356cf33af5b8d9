// SPDX-License-Identifier: Apache-2.0
// Decoding kernel of attention: one query against a cache of keys and values, which is read once
// and in place.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/attention/one_query.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/activation_math-inl.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

// Number of keys that are multiplied together: independent sums hide the latency of additions.
constexpr int64_t kKeyTile = 4;

template <class D, class T>
HWY_INLINE hn::Vec<D> LoadChannels(D d, const T* row, int64_t e, int64_t last,
                                   const FloatTail<D>& tail) {
  return e < last ? LoadFloats(d, row + e) : tail.Load(d, row + last);
}

// Prefetches a head's keys and then its values 4 KB before they are read. A head is too short a
// stream for the hardware prefetchers, which start again in each page. It is kept because, on
// machines whose caches are as large as the weights, decoding GPT-2 124M is slower without it: by
// 12 % (int8) and 9 % (bf16) with batch 8 and 500 to 800 keys on Zen 5. With 64 to 260 keys
// the difference is within the noise.
template <class T>
class Prefetcher {
 public:
  explicit Prefetcher(const AttendOneArgs<T>& args)
      : args_(args), distance_(std::max(kKeyTile, kBytesAhead / (args.head_dim * kSize))) {}

  // To be called when row `row` of the keys, or `row` - args.keys of the values, is read. Always
  // inlined, because gcc assumes that a function that only prefetches has no effect.
  [[gnu::always_inline]] void Step(int64_t row) const {
    const T* from = args_.k;
    row += distance_;
    if (row >= args_.keys) {
      row -= args_.keys;
      from = args_.v;
    }
    if (row >= args_.keys) return;
    from = args_.Row(from, row);
    for (int64_t e = 0; e < kKeyTile * args_.head_dim; e += kLine) {
      __builtin_prefetch(from + e, 0, 2);
    }
  }

 private:
  static constexpr int64_t kSize = sizeof(T), kLine = kAlignment / kSize, kBytesAhead = 4096;
  const AttendOneArgs<T>& args_;
  const int64_t distance_;  // in rows
};

// Computes channels [e, e + kVectors * lanes) of the context: values weighted with `weights` *
// inverse.
template <int kVectors, class D, class T>
HWY_INLINE void SumValues(D d, const AttendOneArgs<T>& args, const float* weights, int64_t e,
                          int64_t last, const FloatTail<D>& tail, hn::Vec<D> inverse,
                          const Prefetcher<T>& prefetcher) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = args.keys;
  V sum[kVectors][2];
#pragma GCC unroll 4
  for (int r = 0; r < kVectors; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
  const auto add = [&](int64_t row, int chain) HWY_ATTR {
    const V weight = hn::Set(d, weights[row]);
    const T* const v = args.Row(args.v, row);
#pragma GCC unroll 4
    for (int r = 0; r < kVectors; ++r) {
      sum[r][chain] =
          hn::MulAdd(weight, LoadChannels(d, v, e + r * lanes, last, tail), sum[r][chain]);
    }
  };
  int64_t i = 0;
  for (; i + kKeyTile <= n; i += kKeyTile) {
    if (e == 0) prefetcher.Step(n + i);
    add(i, 0);
    add(i + 1, 1);
    add(i + 2, 0);
    add(i + 3, 1);
  }
  for (; i < n; ++i) add(i, 0);
#pragma GCC unroll 4
  for (int r = 0; r < kVectors; ++r) {
    const V context = hn::Mul(hn::Add(sum[r][0], sum[r][1]), inverse);
    const int64_t at = e + r * lanes;
    if (at < last) {
      StoreFloats(context, d, args.context + at);
    } else {
      tail.Store(context, d, args.context + last);
    }
  }
}

// D is the narrowest vector that holds a small head, else the widest vector.
template <class D, class T>
void AttendOne(const AttendOneArgs<T>& args, float* scores) {
  const D d;
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t c = args.head_dim, n = args.keys;
  const int64_t last = (c - 1) / lanes * lanes;
  const FloatTail<D> tail(d, c - last);

  const Prefetcher<T> prefetcher(args);
  int64_t j = 0;
  for (; j + kKeyTile <= n; j += kKeyTile) {
    prefetcher.Step(j);
    const T *k0 = args.Row(args.k, j), *k1 = args.Row(args.k, j + 1);
    const T *k2 = args.Row(args.k, j + 2), *k3 = args.Row(args.k, j + 3);
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t e = 0; e <= last; e += lanes) {
      const V q = LoadChannels(d, args.q, e, last, tail);
      s0 = hn::MulAdd(q, LoadChannels(d, k0, e, last, tail), s0);
      s1 = hn::MulAdd(q, LoadChannels(d, k1, e, last, tail), s1);
      s2 = hn::MulAdd(q, LoadChannels(d, k2, e, last, tail), s2);
      s3 = hn::MulAdd(q, LoadChannels(d, k3, e, last, tail), s3);
    }
    FoldLanes(d, s0, s1, s2, s3, Sum(), scores + j);
  }
  for (; j < n; ++j) {
    V s = hn::Zero(d);
    for (int64_t e = 0; e <= last; e += lanes) {
      s = hn::MulAdd(LoadChannels(d, args.q, e, last, tail),
                     LoadChannels(d, args.Row(args.k, j), e, last, tail), s);
    }
    scores[j] = hn::GetLane(hn::SumOfLanes(d, s));
  }

  // The scores' buffer is padded to whole vectors with -infinity, which has no effect. A sink is a
  // score without a key.
  const hn::ScalableTag<float> wide;
  using W = hn::Vec<decltype(wide)>;
  const int64_t step = static_cast<int64_t>(hn::Lanes(wide));
  const SoftmaxVariant& variant = args.variant;
  const int64_t padded = RoundUp(n + (variant.has_sink() ? 1 : 0), step);
  for (int64_t i = n; i < padded; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  if (variant.has_sink()) scores[n] = variant.sink;
  const W scale = hn::Set(wide, variant.cap == 0 ? args.scale : args.scale / variant.cap);
  const auto scaled = [&](int64_t i) HWY_ATTR {
    // Lanes beyond the keys stay as they are, so that -inf keeps its sign.
    const W s = hn::Load(wide, scores + i);
    const int64_t left = std::max<int64_t>(0, std::min(step, n - i));
    W y = hn::Mul(s, scale);
    if (variant.cap != 0) {
      W slope;
      Tanh::Both(wide, y, &y, &slope);
      y = hn::Mul(y, hn::Set(wide, variant.cap));
    }
    if (variant.slope != 0) {  // the last key is the query's own, at distance 0
      y = hn::MulAdd(hn::Set(wide, variant.slope), hn::Iota(wide, static_cast<float>(i - n + 1)),
                     y);
    }
    if (variant.key_bias != nullptr) {
      HWY_ALIGN float bias[hn::MaxLanes(wide)];
      variant.CopyKeyBias(0, i, left, bias);
      const W own = hn::Set(wide, variant.key_bias[(n - 1) * variant.key_bias_stride]);
      y = hn::Add(y, hn::Sub(hn::Load(wide, bias), own));
    }
    return hn::IfThenElse(hn::FirstN(wide, static_cast<size_t>(left)), y, s);
  };
  W top = hn::Set(wide, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < padded; i += step) {
    const W s = scaled(i);
    hn::Store(s, wide, scores + i);
    top = hn::Max(top, s);
  }
  top = hn::MaxOfLanes(wide, top);
  W total = hn::Zero(wide);
  for (int64_t i = 0; i < padded; i += step) {
    const W p = ExpKeepingNaN(wide, hn::Sub(hn::Load(wide, scores + i), top));
    hn::Store(p, wide, scores + i);
    total = hn::Add(total, p);
  }
  const V inverse = hn::Set(d, 1.0f / hn::GetLane(hn::SumOfLanes(wide, total)));

  // Channels are summed in groups of vectors, rows in order.
  for (int64_t e = 0; e <= last;) {
    const int64_t vectors = (last - e) / lanes + 1;
    if (vectors >= 4) {
      SumValues<4>(d, args, scores, e, last, tail, inverse, prefetcher);
      e += 4 * lanes;
    } else {
      SumValues<1>(d, args, scores, e, last, tail, inverse, prefetcher);
      e += lanes;
    }
  }
}

template <class T>
AttendOneFn<T> SelectAttendOne(int64_t head_dim) {
  if (head_dim <= 4) return AttendOne<hn::CappedTag<float, 4>, T>;
  if (head_dim <= 8) return AttendOne<hn::CappedTag<float, 8>, T>;
  return AttendOne<hn::ScalableTag<float>, T>;
}
AttendOneFn<float> SelectAttendOneF32(int64_t head_dim) { return SelectAttendOne<float>(head_dim); }
AttendOneFn<uint16_t> SelectAttendOneBf16(int64_t head_dim) {
  return SelectAttendOne<uint16_t>(head_dim);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectAttendOneF32);
HWY_EXPORT(SelectAttendOneBf16);

template <>
AttendOneFn<float> ChooseAttendOne<float>(int64_t head_dim) {
  return HWY_DYNAMIC_DISPATCH(SelectAttendOneF32)(head_dim);
}
template <>
AttendOneFn<uint16_t> ChooseAttendOne<uint16_t>(int64_t head_dim) {
  return HWY_DYNAMIC_DISPATCH(SelectAttendOneBf16)(head_dim);
}

int64_t AttendOneScratchBytes(int64_t keys) {
  return PackedWidth(keys + 1) * static_cast<int64_t>(sizeof(float));  // one more for a sink
}

}  // namespace plumb
#endif  // HWY_ONCE
