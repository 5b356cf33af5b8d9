// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/train_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace plumb {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

std::string OverrideError(const Overrides& overrides) {
  const absl::StatusOr<TrainSpec> spec = ParseTrainSpec("", "t.pbtxt", overrides);
  if (spec.ok()) return "no error";
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

TEST(TrainSpecTest, UnitsDivideAStepsSequences) {
  const TrainSpec s =
      ParseTrainSpec("batch_size: 6 gradient_accumulation_steps: 2", "t", {}).value();
  EXPECT_EQ(s.num_units(), 2);
  EXPECT_EQ(s.unit_rows(), 6);
}

TEST(TrainSpecTest, OverridesSetRulesAndLets) {
  const TrainSpec s = ParseTrainSpec(
                          "let: 'a = 1' let: 'b = a' let: 'a = 2' rule { match: '*' "
                          "clip: '1' }",
                          "t.pbtxt", {{"rule[0].clip", "7"}})
                          .value();
  EXPECT_EQ(s.rules[0].field(RuleField::kClip)->text.value, "7");
  ASSERT_EQ(s.lets.size(), 2u);
  EXPECT_EQ(s.lets[0].text.value, "a = 2");
}

TEST(TrainSpecTest, OverridesComeLastAndInOrder) {
  const TrainSpec s = ParseTrainSpec("max_steps: 5 learning_rate: 1", "t.pbtxt",
                                     {{"max_steps", "6"},
                                      {"learning_rate", "0.5"},
                                      {"max_steps", "7"},
                                      {"schedule", "cosine"},
                                      {"data.format", "DOCUMENTS"}})
                          .value();
  EXPECT_EQ(s.max_steps, 7);
  EXPECT_EQ(s.decay_steps, 7);
  EXPECT_EQ(s.learning_rate, 0.5);
  EXPECT_EQ(s.schedule, ScheduleKind::kCosine);
  EXPECT_THAT(s.text, testing::HasSubstr("format: DOCUMENTS\n"));
}

TEST(TrainSpecTest, OverridesHaveErrors) {
  EXPECT_EQ(OverrideError({{"max_step", "6"}}),
            "train.max_step: Train has no field \"max_step\"; did you mean \"max_steps\"?");
  EXPECT_EQ(OverrideError({{"max_steps", "many"}}),
            "train.max_steps: \"many\" is not a whole number");
  EXPECT_EQ(OverrideError({{"schedule", "step"}}),
            "train.schedule: \"step\" is not one of CONSTANT, LINEAR, COSINE, WSD, INVERSE_SQRT");
  EXPECT_EQ(OverrideError({{"seed", "-1"}}), "train.seed: \"-1\" is not a whole number >= 0");
  EXPECT_EQ(OverrideError({{"max_steps", "-6"}}), "t.pbtxt: max_steps must be at least 1");
}

}  // namespace
}  // namespace plumb
