// SPDX-License-Identifier: Apache-2.0
// Tests a model that is larger than the memory of the machine.
#include <gtest/gtest.h>

#include <cstdint>

#include "runtime/client/recipe.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr char kLlama7b[] = R"pbtxt(
  n_layer: 32 n_head: 32 d_model: 4096 d_ff: "11008" vocab_size: 32000 context_length: 2048
  positions { kind: ROPE } mlp { activation: SILU gated: true }
  block { placement: "pre" norm: "rms_norm" })pbtxt";

// Describing a model plans its step and reserves no memory.
TEST(LargeModelTest, IsDescribedAndPlannedWithoutMemory) {
  const auto runtime = MakeHostRuntime();
  const auto model = TryModel(runtime.get(), kLlama7b);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto description = DescribeModel(*model);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ((*description)["totals"]["parameters"], 6738415616);
  EXPECT_EQ((*description)["totals"]["weight_bytes"], 4 * 6738415616);
  const auto memory = PlanTraining(*model, "", {});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->weights + memory->moments, 12 * 6738415616);
  // The workspace exceeds the logits and their gradient plus the saved scores or hidden values of
  // every layer.
  EXPECT_GT(memory->workspace, int64_t{4} * 2048 * 32000 + int64_t{4} * 32 * 2048 * 11008);
  EXPECT_EQ((*description)["identity_route"], "clean (I)");
}

}  // namespace
}  // namespace plumb
