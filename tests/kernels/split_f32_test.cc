// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/split_f32.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Returns all high halves, each with the low halves at which rounding changes.
std::vector<float> AllKinds() {
  std::vector<float> values;
  for (uint32_t top = 0; top < 0x10000u; ++top) {
    for (const uint32_t rest : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(FromBits((top << 16) | rest));
    }
  }
  return values;
}

TEST(SplitF32Test, EveryFloatRoundTrips) {
  for (const float value : AllKinds()) {
    uint16_t high, low;
    SplitFloat(value, &high, &low);
    const float back = JoinFloat(high, low);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(back)) << std::hex << ToBits(value);
      ASSERT_TRUE(std::isnan(FloatFromBf16(high))) << std::hex << ToBits(value);
      ASSERT_EQ(std::signbit(back), std::signbit(value)) << std::hex << ToBits(value);
    } else {
      ASSERT_EQ(ToBits(back), ToBits(value));
    }
  }
}

TEST(SplitF32Test, HighIsTheNearestBf16) {
  for (const float value : AllKinds()) {
    uint16_t high, low;
    SplitFloat(value, &high, &low);
    const uint32_t bits = ToBits(value);
    if (std::isnan(value)) continue;
    const bool tie = (bits & 0xffffu) == 0x8000u;  // the upper neighbour is larger in magnitude
    ASSERT_EQ(high, tie ? (bits >> 16) + 1 : Bf16FromFloat(value)) << std::hex << bits;
  }
  uint16_t high, low;
  SplitFloat(-std::numeric_limits<float>::infinity(), &high, &low);
  EXPECT_EQ(high, 0xff80u);
  EXPECT_EQ(low, 0u);
}

TEST(SplitF32Test, KernelsMatchScalarsAndWriteInBounds) {
  const std::vector<float> kinds = AllKinds();
  ForEachSimdTarget([&](const std::string& target) {
    for (const size_t n :
         {size_t{0}, size_t{1}, size_t{7}, size_t{16}, size_t{63}, size_t{1000}, kinds.size()}) {
      for (const int threads : {1, 4}) {
        constexpr uint16_t kUntouched = 0x1234;
        std::vector<uint16_t> high(n + 1, kUntouched), low(high), alone(high);
        const int64_t count = static_cast<int64_t>(n);
        SplitFloats(kinds.data(), count, threads, {high.data(), low.data()});
        HighBf16(kinds.data(), count, threads, alone.data());
        std::vector<float> back(n + 1, 7.0f);
        JoinFloats({high.data(), low.data()}, count, threads, back.data());
        for (size_t i = 0; i < n; ++i) {
          uint16_t want_high, want_low;
          SplitFloat(kinds[i], &want_high, &want_low);
          ASSERT_EQ(high[i], want_high) << target << std::hex << " " << ToBits(kinds[i]);
          ASSERT_EQ(low[i], want_low) << target << std::hex << " " << ToBits(kinds[i]);
          ASSERT_EQ(ToBits(back[i]), ToBits(JoinFloat(want_high, want_low))) << target;
        }
        EXPECT_EQ(alone, high) << target;
        EXPECT_EQ(high[n], kUntouched) << target;
        EXPECT_EQ(low[n], kUntouched) << target;
        EXPECT_EQ(back[n], 7.0f) << target;
      }
    }
  });
}

TEST(SplitF32Test, PlanesFitTheStorageOfTheFloats) {
  for (const int64_t n : {0, 1, 31, 32, 33, 64, 1000}) {
    const int64_t storage = (n + 31) / 32 * 32;
    const AlignedBuffer buffer(storage * 4 + 64);
    const SplitF32 split = SplitF32In(buffer.as<float>(), n);
    const auto offset = [&](const uint16_t* plane) {
      return reinterpret_cast<const std::byte*>(plane) - buffer.data();
    };
    EXPECT_EQ(offset(split.high), 0);
    EXPECT_GE(offset(split.low), 2 * n);
    EXPECT_EQ(offset(split.low) % kAlignment, 0);
    EXPECT_LE(offset(split.low) + 2 * n, storage * 4) << n;
  }
}

}  // namespace
}  // namespace plumb
