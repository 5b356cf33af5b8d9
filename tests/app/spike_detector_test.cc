// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/spike_detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace plumb {
namespace {

// Returns losses around 2.3 with a standard deviation of about 0.3.
double Noisy(uint32_t i) { return 2.3 + 0.3 * std::sqrt(2) * std::sin(1.7 * i) * std::cos(i * i); }

TEST(SpikeDetectorTest, DetectsJumpsAndIgnoresNoise) {
  SpikeDetector detector;
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_FALSE(detector.Add(Noisy(i))) << i;
  EXPECT_TRUE(detector.Add(9));
  EXPECT_TRUE(detector.is_high());
  EXPECT_NEAR(detector.level(), 2.3, 0.2);
  EXPECT_FALSE(detector.Add(8)) << "it is still the same spike";
  EXPECT_FALSE(detector.Add(2.3));
  EXPECT_FALSE(detector.is_high());
  EXPECT_TRUE(detector.Add(9)) << "this is another";
}

TEST(SpikeDetectorTest, IgnoresSmallJumps) {
  SpikeDetector detector;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(detector.Add(1));
  EXPECT_FALSE(detector.Add(1.9)) << "less than a nat";
  EXPECT_TRUE(detector.Add(2.1));
}

TEST(SpikeDetectorTest, IgnoresTheFirstLosses) {
  SpikeDetector detector;
  for (size_t i = 0; i + 1 < SpikeDetector::kMin; ++i) EXPECT_FALSE(detector.Add(1));
  EXPECT_FALSE(detector.Add(100));
  EXPECT_TRUE(detector.Add(100));
}

TEST(SpikeDetectorTest, AdaptsToAHigherLevel) {
  SpikeDetector detector;
  for (int i = 0; i < 60; ++i) detector.Add(1);
  int spikes = 0;
  for (int i = 0; i < 60; ++i) spikes += detector.Add(5) ? 1 : 0;
  EXPECT_EQ(spikes, 1);
  EXPECT_FALSE(detector.is_high());
}

TEST(SpikeDetectorTest, ARestoredDetectorContinues) {
  for (size_t n : {0u, 7u, 49u, 50u, 51u, 130u}) {
    SpikeDetector whole;
    for (uint32_t i = 0; i < n; ++i) whole.Add(i % 40 == 39 ? 30 : Noisy(i));
    SpikeDetector restored;
    restored.Restore(whole.losses(), whole.is_high());
    for (uint32_t i = 0; i < 200; ++i) {
      const double loss = i % 23 == 3 ? 4.5 + 0.1 * (i % 7) : Noisy(i);
      ASSERT_EQ(whole.Add(loss), restored.Add(loss)) << n << " " << i;
      ASSERT_EQ(whole.is_high(), restored.is_high());
    }
    EXPECT_EQ(whole.losses(), restored.losses());
  }
}

}  // namespace
}  // namespace plumb
