// SPDX-License-Identifier: Apache-2.0
// Training with masked tokens: the model learns the tokens that were hidden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/session/train_session.h"
#include "tests/app/test_models.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

TinyModel Bidirectional() {
  TinyModel model;
  model.vocab_size = 7;  // letters a..e, the begin/end token, the mask
  model.context_length = 12;
  model.more = "bidirectional: true token_types: 2";
  return model;
}

// Every letter is the one before it or one of the next two, so both neighbours together determine
// more than one.
TEST(MaskedTrainingTest, LearnsToFillGaps) {
  const auto runtime = MakeRuntime();
  TinyModel model = Bidirectional();
  model.d_model = 16;
  model.vocab_size = 9;
  const auto context = MakeContext(runtime.get(), model.Text());
  const Dataset data = TextDataset(4000, 8);
  TrainSpec spec;
  spec.batch_size = 16;
  spec.learning_rate = 0.01;
  spec.masked_tokens.emplace();
  const auto session = *TrainSession::Create(context.get(), &data, spec, 1);
  double last = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto step = session->Step();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->tokens, 16 * 2);  // round(0.15 * 12) per row
    if (i >= 950) last += step->loss / 50;
  }
  EXPECT_LT(last, 1.1);  // 0.95 after more steps; without the neighbours log(8) = 2.08
}

TEST(MaskedTrainingTest, RefusesCausalModelsAndInvalidMasks) {
  const auto runtime = MakeRuntime();
  TinyModel model = Bidirectional();
  const Dataset data = Documents(40, 3, 11);
  TrainSpec spec;
  spec.masked_tokens.emplace().mask_token = 7;
  const auto bidirectional = MakeContext(runtime.get(), model.Text());
  const absl::Status no_token = TrainSession::Create(bidirectional.get(), &data, spec, 1).status();
  EXPECT_EQ(no_token.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(no_token.message()),
              HasSubstr("mask_token 7 is not in the vocabulary of 7"));
  model.more = "";
  const auto causal = MakeContext(runtime.get(), model.Text());
  spec.masked_tokens->mask_token = 6;
  const absl::Status wrong = TrainSession::Create(causal.get(), &data, spec, 1).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("needs a bidirectional model"));
}

}  // namespace
}  // namespace plumb
