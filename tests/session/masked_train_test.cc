// Training with masked tokens: bits depend neither on threads nor on where a run was resumed, and
// what is learned is what was hidden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/io/safetensors.h"
#include "runtime/session/train_session.h"
#include "tests/api/test_models.h"
#include "tests/session/scratch_dir.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 6;

TinyModel Bidirectional() {
  TinyModel model;
  model.vocab_size = 7;  // letters a..e, the begin/end token, the mask
  model.context_length = 12;
  model.more = "bidirectional: true token_types: 2";
  return model;
}

class MaskedTrainTest : public ::testing::TestWithParam<DType> {
 protected:
  MaskedTrainTest() {
    spec_.batch_size = 3;
    spec_.gradient_accumulation_steps = 2;
    spec_.learning_rate = 0.01;
    spec_.dtype = GetParam();
    spec_.masked_tokens.emplace();
  }
  std::unique_ptr<TrainSession> Make(int threads = 1) {
    auto session = TrainSession::Create(context_.get(), &data_, spec_, threads);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  static std::vector<double> Losses(TrainSession* session, int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const auto step = session->Step();
      EXPECT_TRUE(step.ok()) << step.status();
      if (step.ok()) losses.push_back(step->loss);
    }
    return losses;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime(3);
  const std::unique_ptr<ModelContext> context_ =
      MakeContext(runtime_.get(), Bidirectional().Text());
  const Dataset data_ = Documents(40, 3, 11);
  TrainSpec spec_;
};

TEST_P(MaskedTrainTest, TheBitsDependNeitherOnThreadsNorOnWhatIsRecomputed) {
  const auto one = Make();
  const std::vector<double> losses = Losses(one.get(), kSteps);
  const auto three = Make(/*threads=*/3);
  EXPECT_EQ(Losses(three.get(), kSteps), losses);
  EXPECT_EQ(Floats(three->parameters()), Floats(one->parameters()));
  spec_.recompute_blocks = true;
  const auto again = Make();
  EXPECT_EQ(Losses(again.get(), kSteps), losses);
  spec_.seed = 2;
  EXPECT_NE(Losses(Make().get(), kSteps), losses);
}

TEST_P(MaskedTrainTest, ARunThatIsResumedIsTheRunThatWasNot) {
  const auto whole = Make();
  const std::vector<double> losses = Losses(whole.get(), kSteps);
  const auto first = Make();
  Losses(first.get(), kSteps / 2);
  const ScratchDir scratch;
  ASSERT_TRUE(WriteSafetensors(scratch.File("model"), first->parameters().Tensors()).ok());
  ASSERT_TRUE(WriteSafetensors(scratch.File("optimizer"), first->optimizer().Tensors()).ok());
  const auto second = Make();
  ASSERT_TRUE(second->parameters().Read(*SafetensorsFile::Open(scratch.File("model"))).ok());
  ASSERT_TRUE(second->optimizer().Read(*SafetensorsFile::Open(scratch.File("optimizer"))).ok());
  second->ResumeAt(first->step());
  EXPECT_EQ(Losses(second.get(), kSteps - kSteps / 2),
            std::vector<double>(losses.begin() + kSteps / 2, losses.end()));
  EXPECT_EQ(Floats(second->parameters()), Floats(whole->parameters()));
}

TEST_P(MaskedTrainTest, TheMemoryIsAsPlanned) {
  const auto session = Make();
  ASSERT_TRUE(session->Step().ok());
  const auto planned = PlanTrainMemory(*context_, spec_, session->max_seq());
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->inputs, session->memory().inputs);
  const int64_t micro_batches = 2 * 3 * 3 * session->max_seq() * 4;
  EXPECT_EQ(planned->inputs, 4 * 3 * session->max_seq() * 4 + 3 * 4 + 3 * 64 + micro_batches);
}

INSTANTIATE_TEST_SUITE_P(Types, MaskedTrainTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) {
                           return test.param == DType::kF32 ? "f32" : "bf16";
                         });

// Every letter is the one before it or one of the next two; both neighbours tell more than one.
TEST(MaskedTrainingTest, LearnsToFillGaps) {
  const auto runtime = MakeRuntime();
  TinyModel model = Bidirectional();
  model.d_model = 16;
  model.vocab_size = 9;
  const auto context = MakeContext(runtime.get(), model.Text());
  const Dataset data = TextOf(4000, 8);
  TrainSpec spec;
  spec.batch_size = 16;
  spec.learning_rate = 0.01;
  spec.masked_tokens.emplace();
  const auto session = *TrainSession::Create(context.get(), &data, spec, 1);
  double last = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto step = session->Step();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->tokens, 16 * 2);  // round(0.15 * 12) a row
    if (i >= 950) last += step->loss / 50;
  }
  EXPECT_LT(last, 1.1);  // 0.95 after more steps; without the neighbours log(8) = 2.08
}

TEST(MaskedTrainingTest, RefusesAModelThatIsNotBidirectionalAndAMaskThatIsNoToken) {
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
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("for models that are bidirectional"));
}

}  // namespace
}  // namespace plumb
