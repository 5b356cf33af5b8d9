// SPDX-License-Identifier: Apache-2.0
// Training on completions: the loss and the gradient of a step are the means over the tokens that
// count, each computed alone, without the other targets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/session/gradient_pass.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/train_session.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

Dataset CompletionData() {
  DatasetOptions options;
  options.format = DatasetOptions::Format::kJsonl;
  options.val_fraction = 0;
  return *Dataset::FromContent(R"({"prompt": "abc", "completion": "de"}
{"prompt": "edcba", "completion": "a"}
{"text": "bad"}
{"prompt": "abcdeabcdeabcdeabcde", "completion": "a"}
)",
                               "f.jsonl", options);
}

TrainSpec CompletionSpec(int64_t batch_size, int64_t micro_batches) {
  TrainSpec spec;
  spec.batch_size = batch_size;
  spec.gradient_accumulation_steps = micro_batches;
  spec.keep_order = true;
  spec.grad_clip = 0;
  return spec;
}

TEST(LossMaskTest, StepAveragesItsTargets) {
  const auto runtime = MakeRuntime();
  TinyModel model;
  model.vocab_size = 6;
  model.context_length = 12;
  const auto context = MakeContext(runtime.get(), model.Text());
  const Dataset data = CompletionData();
  const TrainSpec spec = CompletionSpec(3, 1);
  const auto session = *TrainSession::Create(context.get(), &data, spec, 1);
  const ParameterStore& parameters = session->parameters();

  TrainBatches batches = *TrainBatches::Create(&data, {3, 1, 12, spec.seed, /*keep_order=*/true});
  Batch batch = batches.MakeBatch();
  batches.Fill(0, &batch);
  ASSERT_EQ(batch.valid_targets, 3 + 2 + 4);
  const PackedWeights weights(*context, WeightFormat::kF32, parameters);
  GradientPass pass(context.get(), &parameters, &weights, 3, batch.seq, /*logits=*/false, 1);
  const auto size = static_cast<size_t>(parameters.layout().size);
  std::vector<double> gradient(size);
  double loss = 0;
  for (size_t t = 0; t < batch.targets.size(); ++t) {
    if (batch.targets[t] < 0) continue;
    std::vector<int32_t> alone(batch.targets.size(), -1);
    alone[t] = batch.targets[t];
    const auto one =
        pass.Run({batch.tokens.data(), batch.positions.data(), alone.data()}, batch.seq, nullptr);
    ASSERT_TRUE(one.ok()) << one.status();
    loss += *one / 9;
    for (size_t i = 0; i < size; ++i) gradient[i] += static_cast<double>(pass.gradients()[i]) / 9;
  }

  const auto step = session->Step();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->tokens, 9);
  EXPECT_NEAR(step->loss, loss, 1e-6);
  double largest = 0, farthest = 0;
  for (size_t i = 0; i < size; ++i) {
    largest = std::max(largest, std::fabs(gradient[i]));
    farthest =
        std::max(farthest, std::fabs(gradient[i] - static_cast<double>(session->gradients()[i])));
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_LT(farthest, 1e-6 * std::max(1.0, largest));
}

// The fourth document has no target and is skipped, so that every epoch has three.
TEST(LossMaskTest, SkipsDocumentsWithoutTargets) {
  const auto runtime = MakeRuntime();
  TinyModel model;
  model.vocab_size = 6;
  model.context_length = 12;
  const auto context = MakeContext(runtime.get(), model.Text());
  const Dataset data = CompletionData();
  const auto session = *TrainSession::Create(context.get(), &data, CompletionSpec(1, 1), 1);
  for (int i = 0; i < 7; ++i) {
    const auto step = session->Step();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->tokens, std::vector<int64_t>({3, 2, 4})[static_cast<size_t>(i % 3)]);
    EXPECT_GT(step->loss, 0);
  }
}

}  // namespace
}  // namespace plumb
