#include "runtime/session/schedule.h"

#include <gtest/gtest.h>

#include <limits>

namespace plumb {
namespace {

ScheduleSpec Spec(ScheduleSpec::Kind kind) {
  ScheduleSpec spec;
  spec.kind = kind;
  spec.learning_rate = 0.01;
  spec.decay_steps = 1000;
  return spec;
}

TEST(ScheduleTest, ConstantIsConstant) {
  const ScheduleSpec spec = Spec(ScheduleSpec::Kind::kConstant);
  for (int64_t t : {0, 1, 999, 1000, 5000}) EXPECT_EQ(LearningRate(spec, t), 0.01);
}

TEST(ScheduleTest, LinearIsTheStudysFormulaToTheLastBit) {
  const ScheduleSpec spec = Spec(ScheduleSpec::Kind::kLinear);
  for (int64_t t = 0; t < 1000; ++t) {
    ASSERT_EQ(LearningRate(spec, t), 0.01 * (1 - static_cast<double>(t) / 1000)) << t;
  }
  EXPECT_EQ(LearningRate(spec, 1000), 0.0);
  EXPECT_EQ(LearningRate(spec, 2000), 0.0);
}

TEST(ScheduleTest, LinearEndsAtTheMinimum) {
  ScheduleSpec spec = Spec(ScheduleSpec::Kind::kLinear);
  spec.min_learning_rate = 0.002;
  EXPECT_EQ(LearningRate(spec, 0), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 500), 0.006);
  EXPECT_EQ(LearningRate(spec, 1000), 0.002);
}

TEST(ScheduleTest, CosineIsHalfACosine) {
  ScheduleSpec spec = Spec(ScheduleSpec::Kind::kCosine);
  spec.min_learning_rate = 0.001;
  EXPECT_DOUBLE_EQ(LearningRate(spec, 0), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 500), 0.0055);
  EXPECT_NEAR(LearningRate(spec, 250), 0.001 + 0.009 * 0.85355339059327373, 1e-15);
  EXPECT_EQ(LearningRate(spec, 1000), 0.001);
  EXPECT_EQ(LearningRate(spec, 1 << 30), 0.001);
}

TEST(ScheduleTest, WarmUpIsLinearAndThenTheDecayBegins) {
  ScheduleSpec spec = Spec(ScheduleSpec::Kind::kLinear);
  spec.warmup_steps = 200;
  EXPECT_DOUBLE_EQ(LearningRate(spec, 0), 0.01 / 200);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 99), 0.005);
  EXPECT_EQ(LearningRate(spec, 199), 0.01);
  EXPECT_EQ(LearningRate(spec, 200), 0.01);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 600), 0.005);
  spec.kind = ScheduleSpec::Kind::kConstant;
  EXPECT_DOUBLE_EQ(LearningRate(spec, 49), 0.0025);
  EXPECT_EQ(LearningRate(spec, 200), 0.01);
}

TEST(ScheduleTest, AWarmUpLongerThanTheDecayRunsItsCourse) {
  ScheduleSpec spec = Spec(ScheduleSpec::Kind::kCosine);
  spec.warmup_steps = 100;
  spec.decay_steps = 10;
  EXPECT_TRUE(CheckSchedule(spec).ok());
  EXPECT_DOUBLE_EQ(LearningRate(spec, 49), 0.005);
  EXPECT_EQ(LearningRate(spec, 100), 0.0);
}

TEST(ScheduleTest, ImpossibleSchedulesAreRefused) {
  const ScheduleSpec good = Spec(ScheduleSpec::Kind::kLinear);
  EXPECT_TRUE(CheckSchedule(good).ok());
  ScheduleSpec spec = good;
  spec.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(CheckSchedule(spec).ok());
  spec.learning_rate = -1;
  EXPECT_EQ(CheckSchedule(spec).message(), "learning_rate must be a finite number >= 0, is -1");
  spec = good;
  spec.min_learning_rate = 0.02;
  EXPECT_FALSE(CheckSchedule(spec).ok());
  spec = good;
  spec.warmup_steps = -1;
  EXPECT_FALSE(CheckSchedule(spec).ok());
  spec = good;
  spec.decay_steps = 0;
  EXPECT_EQ(CheckSchedule(spec).message(), "decay_steps must be >= 1, is 0");
  spec.kind = ScheduleSpec::Kind::kConstant;
  EXPECT_TRUE(CheckSchedule(spec).ok());
}

}  // namespace
}  // namespace plumb
