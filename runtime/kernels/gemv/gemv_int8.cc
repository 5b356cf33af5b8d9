// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemv/gemv_int8.h"

#include <cstring>

#include "runtime/kernels/gemv/gemv_int8_blocks.h"
#include "runtime/kernels/gemv/gemv_job.h"
#include "runtime/kernels/simd/cpu_features.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemv/gemv_int8.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kInt8TileRows>;
using D32 = hn::RebindToSigned<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kVectors = kInt8TileRows / kLanes;  // vectors of sums for the rows of a tile
constexpr int64_t kPairs = kInt8Group / 2;

// Rows of x of a register tile. Each needs integer and float sums; there are 32 registers with
// AVX-512, else 16.
constexpr int kMaxRows = kVectors == 1 ? 8 : 4;

// Two elements of each of several rows. Add returns sum + their dot products with two elements of
// x.
#if HWY_TARGET == HWY_SCALAR
struct Weights {
  HWY_INLINE explicit Weights(const int8_t* from) : first(from[0]), second(from[1]) {}
  HWY_INLINE hn::Vec<D32> Add(const int16_t* x, hn::Vec<D32> sum) const {
    return hn::Add(sum, hn::Set(D32(), first * x[0] + second * x[1]));
  }

  int32_t first, second;
};
#else
struct Weights {
  using D16 = hn::Repartition<int16_t, D32>;

  HWY_INLINE explicit Weights(const int8_t* from)
      : pairs(hn::PromoteTo(D16(), hn::LoadU(hn::Rebind<int8_t, D16>(), from))) {}

  HWY_INLINE hn::Vec<D32> Add(const int16_t* x, hn::Vec<D32> sum) const {
    int32_t both;
    std::memcpy(&both, x, sizeof(both));
    const auto all = hn::Set(D32(), both);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
    auto unused = hn::Undefined(D32());  // x86 adds neighbours, all to the first sum
    return hn::ReorderWidenMulAccumulate(D32(), pairs, hn::BitCast(D16(), all), sum, unused);
#else
    const auto low = [](hn::Vec<D32> v)
                         HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
    const auto high = [](hn::Vec<D32> v) HWY_ATTR { return hn::ShiftRight<16>(v); };
    const auto w = hn::BitCast(D32(), pairs);
    return hn::Add(hn::Add(sum, hn::Mul(low(w), low(all))), hn::Mul(high(w), high(all)));
#endif
  }

  hn::Vec<D16> pairs;
};
#endif

struct Block {
  static constexpr int kMaxRows = plumb::HWY_NAMESPACE::kMaxRows;

  template <int kM>
  static void Multiply(const Int8GemvArgs& g, int64_t i, int64_t block) {
    const D d;
    const D32 d32;
    const int64_t width = g.groups * kInt8Group;
    const int16_t* x = g.x + i * width;
    const float* x_scales = g.x_scales + i * g.groups;
    const int8_t* w = g.w + block * g.groups * kInt8TileElements;
    const float* w_scales = g.w_scales + block * g.groups * kInt8TileRows;
    hn::Vec<D> sum[kM][kVectors];
    for (int a = 0; a < kM; ++a) {
      for (int64_t v = 0; v < kVectors; ++v) sum[a][v] = hn::Zero(d);
    }
    for (int64_t group = 0; group < g.groups; ++group) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        hn::Vec<D32> part[kM];
#pragma GCC unroll 8
        for (int a = 0; a < kM; ++a) part[a] = hn::Zero(d32);
#pragma GCC unroll 16
        for (int64_t l = 0; l < kPairs; ++l) {
          const Weights weights(w + 2 * (l * kInt8TileRows + v * kLanes));
#pragma GCC unroll 8
          for (int a = 0; a < kM; ++a) part[a] = weights.Add(x + a * width + 2 * l, part[a]);
        }
        const auto scale = hn::LoadU(d, w_scales + v * kLanes);
#pragma GCC unroll 8
        for (int a = 0; a < kM; ++a) {
          const auto scaled =
              hn::Mul(hn::ConvertTo(d, part[a]), hn::Set(d, x_scales[a * g.groups]));
          sum[a][v] = hn::MulAdd(scaled, scale, sum[a][v]);
        }
      }
      x += kInt8Group;
      x_scales += 1;
      w += kInt8TileElements;
      w_scales += kInt8TileRows;
    }
    for (int a = 0; a < kM; ++a) {
      HWY_ALIGN float totals[kInt8TileRows];
      for (int64_t v = 0; v < kVectors; ++v) hn::Store(sum[a][v], d, totals + v * kLanes);
      StoreInt8Sums(g, i + a, block, totals);
    }
  }
};

Int8GemvFn Select() { return &MultiplyInt8Blocks<Block>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

Int8GemvFn PortableInt8Gemv() { return HWY_DYNAMIC_DISPATCH(Select)(); }

Int8GemvFn SelectInt8Gemv() { return UsesVnni() ? VnniInt8Gemv() : PortableInt8Gemv(); }

Int8Gemv::Int8Gemv(int64_t m, int64_t n, int64_t k)
    : m_(m),
      n_(n),
      groups_(Int8Groups(k)),
      tasks_(CountGemvTasks(m, n * k, n * k, Int8Blocks(n))),
      multiply_(SelectInt8Gemv()) {}

}  // namespace plumb
#endif  // HWY_ONCE
