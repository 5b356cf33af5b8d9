// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace plumb {
namespace {

// Returns the inverse of splitmix64's finalizer, which turns seeds into keys. With it a test can
// choose the key of Philox and compare with the published vectors.
uint64_t Unmix(uint64_t x) {
  const auto inverse = [](uint64_t a) {  // inverse of an odd number modulo 2^64, by Newton's method
    uint64_t r = a;
    for (int i = 0; i < 6; ++i) r *= 2 - a * r;
    return r;
  };
  const auto unshift = [](uint64_t y, int by) {
    uint64_t r = y;
    for (int i = 0; i < 64 / by + 1; ++i) r = y ^ (r >> by);
    return r;
  };
  x = unshift(x, 31) * inverse(0x94d049bb133111ebu);
  x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9u);
  return unshift(x, 30) - 0x9e3779b97f4a7c15u;
}

RngStream StreamWithKey(uint64_t key, uint64_t step) {
  return RngStream(Unmix(Unmix(key) ^ Fnv1a64("kat")), "kat", step);
}

// Random123's kat_vectors for philox4x32-10.
struct Kat {
  uint64_t key, low, high;
  uint32_t out[4];
};
constexpr Kat kVectors[] = {
    {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {0x299f31d0a4093822u,
     0x85a308d3243f6a88u,
     0x0370734413198a2eu,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Fnv1a64Test, HasThePublishedValues) {
  EXPECT_EQ(Fnv1a64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fnv1a64("foobar"), 0x85944171f73967e8u);
}

TEST(RngStreamTest, DrawsThePublishedPhiloxVectors) {
  for (const Kat& kat : kVectors) {
    const RngStream stream = StreamWithKey(kat.key, kat.high);
    EXPECT_EQ(stream.Bits(kat.low), uint64_t{kat.out[0]} << 32 | kat.out[1]);
    const auto unit = [](uint32_t a, uint32_t b) {
      return static_cast<double>((uint64_t{a} << 32 | b) >> 11) * 0x1.0p-53;
    };
    EXPECT_EQ(stream.Uniform(kat.low), unit(kat.out[0], kat.out[1]));
    // The other two words are visible through the angle of the Box-Muller transform.
    const double radius = std::sqrt(-2 * std::log(1 - unit(kat.out[0], kat.out[1])));
    const double angle = 2 * 3.14159265358979323846 * unit(kat.out[2], kat.out[3]);
    EXPECT_DOUBLE_EQ(stream.Normal(kat.low), radius * std::cos(angle));
  }
}

TEST(RngStreamTest, ValuesAreStable) {
  // Checkpoints and published losses depend on these values, so a new value changes the format.
  const RngStream stream(1, "init layers.0.attention.q.weight");
  EXPECT_EQ(stream.Bits(0), 0xf6e4d5208a8c532bu);
  EXPECT_EQ(stream.Bits(1), 0x0a9ea05a5d73036du);
  EXPECT_EQ(RngStream(1, "data", 7).Bits(0), 0xa93df2857af4eebdu);
  EXPECT_EQ(Permutation(RngStream(1, "shuffle"), 8),
            (std::vector<int64_t>{6, 4, 2, 7, 0, 5, 1, 3}));
}

TEST(RngStreamTest, DrawsDependOnNameAndIndexOnly) {
  const RngStream a(3, "data", 5);
  const RngStream b(3, "data", 5);
  const double later = a.Normal(10);
  a.Normal(0);
  EXPECT_EQ(b.Normal(10), later);
}

TEST(RngStreamTest, EveryKeyPartChangesDraws) {
  std::set<uint64_t> seen;
  size_t draws = 0;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const char* purpose : {"", "a", "b", "ab"}) {
      for (const uint64_t step : {0, 1, 1000000}) {
        for (uint64_t i = 0; i < 50; ++i, ++draws) {
          seen.insert(RngStream(seed, purpose, step).Bits(i));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), draws);
}

TEST(RngStreamTest, UniformDrawsAreUniformInTheHalfOpenUnitInterval) {
  const RngStream stream(1, "uniform");
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0;
  std::vector<int> bins(16);
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = stream.Uniform(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
    ++bins[static_cast<size_t>(u * 16)];
  }
  // The tolerance is five standard errors.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));
  for (int count : bins) EXPECT_NEAR(count, kDraws / 16.0, 5 * std::sqrt(kDraws / 16.0));
}

TEST(RngStreamTest, NormalDrawsHaveTheMomentsOfANormal) {
  const RngStream stream(1, "normal");
  constexpr int kDraws = 100000;
  double sum[5] = {};
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double z = stream.Normal(i);
    ASSERT_TRUE(std::isfinite(z));
    for (int k = 1; k <= 4; ++k) sum[k] += std::pow(z, k);
  }
  // The variances of z, z^2, z^3 and z^4 are 1, 2, 15 and 96.
  const double error = 5 / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(sum[1] / kDraws, 0, error);
  EXPECT_NEAR(sum[2] / kDraws, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(sum[3] / kDraws, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(sum[4] / kDraws, 3, error * std::sqrt(96.0));
}

TEST(RngStreamTest, StreamsOfOtherNamesAndNeighbouringIndicesAreUncorrelated) {
  const RngStream a(1, "a"), b(1, "b"), other_seed(2, "a"), next_step(1, "a", 1);
  constexpr int kDraws = 50000;
  double ab = 0, seeds = 0, steps = 0, neighbours = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    ab += a.Normal(i) * b.Normal(i);
    seeds += a.Normal(i) * other_seed.Normal(i);
    steps += a.Normal(i) * next_step.Normal(i);
    neighbours += a.Normal(i) * a.Normal(i + 1);
  }
  const double error = 5 / std::sqrt(static_cast<double>(kDraws));
  for (double sum : {ab, seeds, steps, neighbours}) EXPECT_NEAR(sum / kDraws, 0, error);
}

TEST(RngStreamTest, BelowCoversItsRange) {
  const RngStream stream(1, "below");
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 7000; ++i) {
    const uint64_t k = stream.Below(i, 7);
    ASSERT_LT(k, 7u);
    ++counts[k];
  }
  for (int count : counts) EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000.0));
  EXPECT_EQ(stream.Below(3, 1), 0u);
  const uint64_t max = std::numeric_limits<uint64_t>::max();
  EXPECT_LT(stream.Below(3, max), max);
}

TEST(PermutationTest, ContainsEveryIndexOnce) {
  for (const int64_t n : {0, 1, 2, 3, 100, 1000}) {
    std::vector<int64_t> order = Permutation(RngStream(1, "shuffle", 3), n);
    std::sort(order.begin(), order.end());
    ASSERT_EQ(order.size(), static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(PermutationTest, DependsOnSeedAndStep) {
  const std::vector<int64_t> order = Permutation(RngStream(1, "shuffle", 0), 100);
  EXPECT_EQ(order, Permutation(RngStream(1, "shuffle", 0), 100));
  EXPECT_NE(order, Permutation(RngStream(2, "shuffle", 0), 100));
  EXPECT_NE(order, Permutation(RngStream(1, "shuffle", 1), 100));
}

TEST(PermutationTest, AllOrdersAreEquallyLikely) {
  constexpr int kDraws = 6000;
  std::vector<int> counts(6);
  for (uint64_t step = 0; step < kDraws; ++step) {
    const std::vector<int64_t> order = Permutation(RngStream(1, "shuffle", step), 3);
    ++counts[static_cast<size_t>(2 * order[0] + (order[1] > order[2] ? 1 : 0))];
  }
  for (int count : counts) EXPECT_NEAR(count, kDraws / 6.0, 5 * std::sqrt(kDraws / 6.0));
}

}  // namespace
}  // namespace plumb
