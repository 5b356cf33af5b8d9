// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumb {
namespace {

ScheduleSpec Spec(ScheduleKind kind) {
  ScheduleSpec spec;
  spec.kind = kind;
  spec.learning_rate = 0.01;
  spec.decay_steps = 1000;
  return spec;
}

TEST(ScheduleTest, ConstantIsConstant) {
  const ScheduleSpec spec = Spec(ScheduleKind::kConstant);
  for (int64_t t : {0, 1, 999, 1000, 5000}) EXPECT_EQ(LearningRate(spec, t), 0.01);
}

TEST(ScheduleTest, LinearFollowsItsFormula) {
  const ScheduleSpec spec = Spec(ScheduleKind::kLinear);
  for (int64_t t = 0; t < 1000; ++t) {
    ASSERT_EQ(LearningRate(spec, t), 0.01 * (1 - static_cast<double>(t) / 1000)) << t;
  }
  EXPECT_EQ(LearningRate(spec, 1000), 0.0);
  EXPECT_EQ(LearningRate(spec, 2000), 0.0);
}

TEST(ScheduleTest, LinearEndsAtTheMinimum) {
  ScheduleSpec spec = Spec(ScheduleKind::kLinear);
  spec.min_learning_rate = 0.002;
  EXPECT_EQ(LearningRate(spec, 0), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 500), 0.006);
  EXPECT_EQ(LearningRate(spec, 1000), 0.002);
}

TEST(ScheduleTest, CosineFollowsItsFormula) {
  ScheduleSpec spec = Spec(ScheduleKind::kCosine);
  spec.min_learning_rate = 0.001;
  EXPECT_DOUBLE_EQ(LearningRate(spec, 0), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 500), 0.0055);
  EXPECT_NEAR(LearningRate(spec, 250), 0.001 + 0.009 * 0.85355339059327373, 1e-15);
  EXPECT_EQ(LearningRate(spec, 1000), 0.001);
  EXPECT_EQ(LearningRate(spec, 1 << 30), 0.001);
}

TEST(ScheduleTest, WarmUpIsLinear) {
  ScheduleSpec spec = Spec(ScheduleKind::kLinear);
  spec.warmup_steps = 200;
  EXPECT_DOUBLE_EQ(LearningRate(spec, 0), 0.01 / 200);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 99), 0.005);
  EXPECT_EQ(LearningRate(spec, 199), 0.01);
  EXPECT_EQ(LearningRate(spec, 200), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 600), 0.005);
  spec.kind = ScheduleKind::kConstant;
  EXPECT_DOUBLE_EQ(LearningRate(spec, 49), 0.0025);
  EXPECT_EQ(LearningRate(spec, 200), 0.01);
}

TEST(ScheduleTest, WarmUpMayExceedTheDecay) {
  ScheduleSpec spec = Spec(ScheduleKind::kCosine);
  spec.warmup_steps = 100;
  spec.decay_steps = 10;
  EXPECT_TRUE(CheckSchedule(spec).ok());
  EXPECT_DOUBLE_EQ(LearningRate(spec, 49), 0.005);
  EXPECT_EQ(LearningRate(spec, 100), 0.0);
}

TEST(ScheduleTest, WsdIsConstantBeforeItsCooldown) {
  constexpr double kPi = 3.14159265358979323846;
  ScheduleSpec spec = Spec(ScheduleKind::kWsd);
  spec.warmup_steps = 100;
  spec.cooldown_steps = 200;
  spec.min_learning_rate = 0.001;
  for (const CooldownKind kind :
       {CooldownKind::kLinear, CooldownKind::kOneMinusSqrt, CooldownKind::kCosine}) {
    spec.cooldown = kind;
    for (int64_t t = 0; t < 1200; ++t) {
      const double p = (static_cast<double>(t) - 800) / 200;
      const double left = t >= 1000                             ? 0
                          : kind == CooldownKind::kLinear       ? 1 - p
                          : kind == CooldownKind::kOneMinusSqrt ? 1 - std::sqrt(p)
                                                                : (1 + std::cos(kPi * p)) / 2;
      const double want = t < 100   ? 0.01 * (static_cast<double>(t) + 1) / 100
                          : t < 800 ? 0.01
                                    : 0.001 + 0.009 * left;
      ASSERT_NEAR(LearningRate(spec, t), want, 1e-16) << t;
    }
  }
  EXPECT_EQ(LearningRate(spec, 799), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 800), 0.01);
  EXPECT_LT(LearningRate(spec, 801), 0.01);
}

TEST(ScheduleTest, InverseSquareRootMeetsItsWarmUp) {
  ScheduleSpec spec = Spec(ScheduleKind::kInverseSqrt);
  spec.warmup_steps = 400;
  for (int64_t t = 0; t < 5000; ++t) {  // Vaswani et al., section 5.3, scaled to its peak
    const double s = static_cast<double>(t) + 1;
    const double noam = std::min(1 / std::sqrt(s), s * std::pow(400, -1.5));
    ASSERT_NEAR(LearningRate(spec, t), 0.01 * noam * std::sqrt(400), 1e-16) << t;
  }
  spec.min_learning_rate = 0.004;
  EXPECT_EQ(LearningRate(spec, 399), 0.01);
  EXPECT_EQ(LearningRate(spec, 1 << 20), 0.004);
  spec = Spec(ScheduleKind::kInverseSqrt);
  EXPECT_EQ(LearningRate(spec, 0), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 99), 0.001);
}

TEST(ScheduleTest, MultipliedWarmUpStartsTheScheduleAtOnce) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear,
                                  ScheduleKind::kCosine, ScheduleKind::kWsd}) {
    ScheduleSpec bare = Spec(kind), spec = bare;
    bare.cooldown_steps = spec.cooldown_steps = 950;  // it overlaps the warm-up
    spec.warmup_steps = 200;
    spec.warmup_multiplies = true;
    for (int64_t t = 0; t < 1100; ++t) {
      const double factor = std::min(1.0, (static_cast<double>(t) + 1) / 200);
      ASSERT_DOUBLE_EQ(LearningRate(spec, t), factor * LearningRate(bare, t)) << t;
    }
  }
  ScheduleSpec spec = Spec(ScheduleKind::kLinear);
  spec.warmup_steps = 200;
  spec.warmup_multiplies = true;
  EXPECT_DOUBLE_EQ(LearningRate(spec, 99), 0.01 * (1 - 0.099) / 2);
  // The inverse square root takes its scale from the warm-up: both kinds are equal.
  spec.kind = ScheduleKind::kInverseSqrt;
  ScheduleSpec first = spec;
  first.warmup_multiplies = false;
  for (int64_t t = 0; t < 1000; ++t) ASSERT_EQ(LearningRate(spec, t), LearningRate(first, t));
}

TEST(ScheduleTest, ImpossibleSchedulesAreRefused) {
  const ScheduleSpec good = Spec(ScheduleKind::kLinear);
  EXPECT_TRUE(CheckSchedule(good).ok());
  ScheduleSpec spec = good;
  spec.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(CheckSchedule(spec).ok());
  spec.learning_rate = -1;
  EXPECT_EQ(CheckSchedule(spec).message(), "learning_rate must be a finite number >= 0, is -1");
  spec = good;
  spec.kind = ScheduleKind::kWsd;
  EXPECT_FALSE(CheckSchedule(spec).ok());
  spec.cooldown_steps = 1000;
  EXPECT_TRUE(CheckSchedule(spec).ok());
  spec.cooldown_steps = 1001;
  EXPECT_EQ(CheckSchedule(spec).message(),
            "cooldown_steps must be between 1 and decay_steps (1000), is 1001");
  spec = good;
  spec.min_learning_rate = 0.02;
  EXPECT_FALSE(CheckSchedule(spec).ok());
  spec = good;
  spec.warmup_steps = -1;
  EXPECT_FALSE(CheckSchedule(spec).ok());
  spec = good;
  spec.decay_steps = 0;
  EXPECT_EQ(CheckSchedule(spec).message(), "decay_steps must be >= 1, is 0");
  spec.kind = ScheduleKind::kConstant;
  EXPECT_TRUE(CheckSchedule(spec).ok());
}

}  // namespace
}  // namespace plumb
