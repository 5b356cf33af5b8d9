// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemv/gemv_int8.h"

#include <cstring>

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

// Elements 0 and 1, or 2 and 3, of four of each of several rows. Add returns sum + their dot
// products with two elements of x, by AVX512_VNNI in one instruction, which Highway lacks.
#if HWY_TARGET == HWY_SCALAR
template <bool kVnni>
struct Weights {
  HWY_INLINE Weights(const int8_t* from, bool high) : first(from[high]), second(from[2 + high]) {}
  HWY_INLINE hn::Vec<D32> Add(const int16_t* x, hn::Vec<D32> sum) const {
    return hn::Add(sum, hn::Set(D32(), first * x[0] + second * x[1]));
  }

  int32_t first, second;
};
#else
template <bool kVnni>
struct Weights {
  using D16 = hn::Repartition<int16_t, D32>;

  HWY_INLINE Weights(const int8_t* from, bool high) {
    const hn::Repartition<int8_t, D32> d8;
    const auto both = hn::BitCast(D16(), hn::LoadU(d8, from));
    pairs = hn::ShiftRight<8>(high ? both : hn::ShiftLeft<8>(both));
  }

  HWY_INLINE hn::Vec<D32> Add(const int16_t* x, hn::Vec<D32> sum) const {
    int32_t both;
    std::memcpy(&both, x, sizeof(both));
    const auto all = hn::Set(D32(), both);
#if HWY_TARGET == HWY_AVX3
    if constexpr (kVnni) {
      asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(pairs.raw), "v"(all.raw));
      return sum;
    }
#endif
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

template <bool kVnni>
struct Block {
  // Integer sums of all rows and the weights fit the registers (32 with AVX-512, else 16).
  static constexpr int kMaxRows = kVectors == 1 ? 24 : 8;

  template <int kM>
  static void Multiply(const Int8GemvArgs& g, int64_t i, int64_t block) {
    // With one row of x, two independent sums hide the latency of the addition.
    constexpr int kChains = kM == 1 ? 2 : 1;
    const D d;
    const D32 d32;
    const int64_t width = g.groups * kInt8Group;
    const int16_t* x = g.x + i * width;
    const float* x_scales = g.x_scales + i;
    const int8_t* w = g.w + block * g.groups * kInt8TileElements;
    const float* w_scales = g.w_scales + block * g.groups * kInt8TileRows;
    HWY_ALIGN float sums[kM][kInt8TileRows];
    for (int a = 0; a < kM; ++a) StartInt8Sums(g, block, sums[a]);
    for (int64_t group = 0; group < g.groups; ++group) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        hn::Vec<D32> part[kM][kChains];
#pragma GCC unroll 24
        for (int a = 0; a < kM; ++a) {
#pragma GCC unroll 2
          for (int c = 0; c < kChains; ++c) part[a][c] = hn::Zero(d32);
        }
#pragma GCC unroll 4
        for (int64_t l = 0; l < kInt8Group; l += 4) {
          const int8_t* const from = w + l * kInt8TileRows + 4 * v * kLanes;
          const Weights<kVnni> low(from, false), high(from, true);
#pragma GCC unroll 24
          for (int a = 0; a < kM; ++a) {
            const int16_t* const row = x + a * width + l;
            part[a][0] = low.Add(row, part[a][0]);
            part[a][kChains - 1] = high.Add(row + 2, part[a][kChains - 1]);
          }
        }
        const auto scale = hn::LoadU(d, w_scales + v * kLanes);
#pragma GCC unroll 24
        for (int a = 0; a < kM; ++a) {
          const auto all = kM == 1 ? hn::Add(part[a][0], part[a][kChains - 1]) : part[a][0];
          const auto scaled = hn::Mul(hn::ConvertTo(d, all), hn::Set(d, x_scales[a]));
          float* const sum = sums[a] + v * kLanes;
          hn::Store(hn::MulAdd(scaled, scale, hn::Load(d, sum)), d, sum);
        }
      }
      x += kInt8Group;
      x_scales += g.x_pitch;
      w += kInt8TileElements;
      w_scales += kInt8TileRows;
    }
    for (int a = 0; a < kM; ++a) StoreInt8Sums(g, i + a, block, sums[a]);
  }
};

Int8GemvFn Select([[maybe_unused]] bool vnni) {
#if HWY_TARGET == HWY_AVX3
  if (vnni) return &MultiplyInt8Blocks<Block<true>>;
#endif
  return &MultiplyInt8Blocks<Block<false>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

Int8GemvFn SelectInt8Gemv(bool vnni) { return HWY_DYNAMIC_DISPATCH(Select)(vnni); }

Int8Rows::Int8Rows(int64_t m, int64_t k) : m_(m), k_(k), groups_(Int8Groups(k)), split_(UsesAmx()) {
  constexpr int64_t kPaddingRows = 15;
  scales_at_ =
      AlignUp((m + kPaddingRows) * groups_ * kInt8Group * static_cast<int64_t>(sizeof(int16_t)));
}

void Int8Rows::Quantize(const float* x, int threads, char* scratch) const {
  constexpr int64_t kWork = 8;  // scalar operations per element
  const int64_t tasks = TaskCount(m_, m_ * k_ * kWork);
  ParallelFor(tasks, threads, [&](int64_t task) {
    const Range range = TaskRange(m_, tasks, task);
    const int64_t begin = range.begin, rows = range.end - begin;
    QuantizeInt16(x + begin * k_, rows, k_, elements(scratch, begin), scales(scratch, begin), m_);
    if (split_) SplitInt16(elements(scratch, begin), rows * groups_);
  });
}

Int8Gemv::Int8Gemv(int64_t m, int64_t n, int64_t k)
    : m_(m),
      n_(n),
      groups_(Int8Groups(k)),
      multiply_(UsesAmx() ? AmxInt8Gemv() : SelectInt8Gemv(UsesVnni())) {}

int64_t Int8Gemv::TasksFor(int64_t m) const {
  const int64_t weights = n_ * groups_ * kInt8Group;
  return CountGemvTasks(m, weights, weights, Int8Blocks(n_));
}

}  // namespace plumb
#endif  // HWY_ONCE
