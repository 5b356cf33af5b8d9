// SPDX-License-Identifier: Apache-2.0
// The buffers of norms with statistics over tokens, in training, evaluation and decoding.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/session/decode_session.h"
#include "tests/app/evaluate.h"
#include "tests/session/recipe_fixture.h"
#include "tests/spec/centering_norm.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NormStateTest : public RecipeTest {
 protected:
  NormStateTest() {
    EXPECT_TRUE(runtime_->RegisterPlugin(CenteringNorm()).ok());
    EXPECT_TRUE(runtime_->RegisterPlugin(CenteringEvalNorm()).ok());
  }

  static TinyModel With(const std::string& plugin, const std::string& placement = "pre") {
    TinyModel model;
    model.placement = placement;
    model.norm = "n";
    model.vocab_size = 6;
    model.more =
        absl::StrCat("norm { name: \"n\" plugin: \"", plugin, "\" allow_cross_token: true }");
    return model;
  }

  static void Step(TrainSession* session, int n) {
    for (int i = 0; i < n; ++i) {
      const auto step = session->Step();
      ASSERT_TRUE(step.ok()) << step.status();
    }
  }

  static std::vector<float> States(const ParameterStore& store) {
    return {store.state_data(), store.state_data() + store.states().size};
  }
  static std::vector<float> Weights(const ParameterStore& store) {
    return {store.data(), store.data() + store.layout().size};
  }
  // Returns the buffer with this name, which is one number.
  static float Number(const ParameterStore& store, const std::string& name) {
    for (const StateLayout::Buffer& buffer : store.states().buffers) {
      if (buffer.name == name) return store.state_data()[buffer.begin];
    }
    ADD_FAILURE() << "no buffer " << name;
    return 0;
  }

  const Dataset data_ = TextDataset(400, 6, 0.25);
};

TEST_F(NormStateTest, OnlyTrainingChangesBuffers) {
  for (const char* plugin : {"batch_norm", "test.centering", "test.centering_eval"}) {
    const auto context = MakeContext(runtime_.get(), With(plugin).Text());
    const auto session = Make(*context, data_, TrainSpec());
    const ParameterStore& store = session->parameters();
    const std::vector<float> initial = States(store);
    Step(session.get(), 3);
    const std::vector<float> trained = States(store);
    EXPECT_NE(trained, initial) << plugin;

    const auto eval = EvalSession::Create(context.get(), &store, &data_, Split::kValidation, 4, 1);
    ASSERT_TRUE(eval.ok()) << eval.status();
    ASSERT_TRUE((*eval)->Run(0).ok());
    const Tokens tokens = RandomTokens(2, 8, 6);
    for (bool with_gradients : {false, true}) {
      ASSERT_TRUE(RunBatch(*context, store, tokens, with_gradients, 1).ok());
    }
    if (plugin != std::string("test.centering_eval")) {
      DecodeSession decode(context.get(), &store, 1);
      ASSERT_TRUE(decode.Feed(tokens[0]).ok());
    }
    EXPECT_EQ(States(store), trained) << plugin;
  }
}

TEST_F(NormStateTest, EveryMicroBatchUpdatesBuffers) {
  const auto context = MakeContext(runtime_.get(), With("test.centering").Text());
  TrainSpec spec;
  spec.gradient_accumulation_steps = 3;
  const auto session = Make(*context, data_, spec);
  Step(session.get(), 2);
  EXPECT_EQ(Number(session->parameters(), "layers.1.mlp.norm.calls"), 6);
}

TEST_F(NormStateTest, BuffersHaveNoGradientAndNoDecay) {
  const auto context = MakeContext(runtime_.get(), With("test.centering").Text());
  TrainSpec spec;
  spec.weight_decay = 0.5;
  spec.decay_everything = true;
  const auto session = Make(*context, data_, spec);
  Step(session.get(), 4);
  // A decayed count would not be an integer.
  EXPECT_EQ(Number(session->parameters(), "end.norm.calls"), 4);
  for (const ParameterLayout::Entry& entry : session->parameters().layout().entries) {
    EXPECT_THAT(entry.name, Not(HasSubstr("norm")));
  }
}

TEST_F(NormStateTest, DecodingEqualsTheEvaluationPass) {
  for (const char* placement : {"pre", "post", "double_qk", "parallel", "bloom"}) {
    for (const char* plugin : {"batch_norm", "test.centering"}) {
      const auto context = MakeContext(runtime_.get(), With(plugin, placement).Text());
      TrainSpec spec;
      spec.batch_size = 4;
      const auto session = Make(*context, data_, spec);
      Step(session.get(), 5);  // the running statistics differ from those of the tokens below
      const ParameterStore& store = session->parameters();
      const std::vector<int32_t> tokens = RandomTokens(1, 8, 6)[0];
      const auto full = RunBatch(*context, store, {tokens}, /*with_gradients=*/false, 1);
      ASSERT_TRUE(full.ok()) << full.status();
      EXPECT_TRUE(full->gradients.empty());
      float largest = 0;
      for (float logit : full->logits) largest = std::max(largest, std::fabs(logit));
      DecodeSession decode(context.get(), &store, 1);
      const auto expect_at = [&](size_t n) {
        for (size_t v = 0; v < 6; ++v) {
          ASSERT_NEAR(decode.logits()[v], full->logits[(n - 1) * 6 + v], 1e-5f * largest)
              << placement << " " << plugin << " at " << n;
        }
      };
      for (size_t n = 1; n <= tokens.size(); ++n) {
        ASSERT_TRUE(decode.Feed(absl::MakeConstSpan(&tokens[n - 1], 1)).ok());
        expect_at(n);
      }
      decode.Reset();
      ASSERT_TRUE(decode.Feed(tokens).ok());
      expect_at(tokens.size());
      // A training pass uses the statistics of these tokens, so it depends on later ones.
      const auto training = RunBatch(*context, store, {tokens}, /*with_gradients=*/true, 1);
      ASSERT_TRUE(training.ok()) << training.status();
      EXPECT_GT(RelativeError(training->logits, full->logits), 1e-3) << placement << " " << plugin;
    }
  }
}

TEST_F(NormStateTest, BatchStatisticsNormsCannotDecode) {
  const auto context = MakeContext(runtime_.get(), With("test.centering_eval").Text());
  const auto session = Make(*context, data_, TrainSpec());
  const double before = session->Step()->loss;
  Step(session.get(), 30);
  const auto eval =
      EvalSession::Create(context.get(), &session->parameters(), &data_, Split::kValidation, 4, 1);
  ASSERT_TRUE(eval.ok()) << eval.status();
  EXPECT_LT((*eval)->Run(0)->loss, before);
  DecodeSession decode(context.get(), &session->parameters(), 1);
  const absl::Status status = decode.Feed({1});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("norm \"n\" (test.centering_eval)"));
  EXPECT_EQ(decode.length(), 0);
}

// The step is repeated to find the first bad tensor. The states that the first run wrote must not
// be reported, and must not stay.
TEST_F(NormStateTest, DivergedStepKeepsBuffers) {
  for (int micro_batches : {1, 2}) {
    const auto context = MakeContext(runtime_.get(), With("batch_norm").Text());
    TrainSpec spec;
    spec.gradient_accumulation_steps = micro_batches;
    const auto session = Make(*context, data_, spec);
    Step(session.get(), 2);
    const ParameterStore& store = session->parameters();
    for (const ParameterLayout::Entry& entry : store.layout().entries) {
      if (entry.name != "layers.0.attention.o.weight") continue;
      std::fill(store.data() + entry.begin, store.data() + entry.end, 3e38f);
    }
    const std::vector<float> weights = Weights(store), states = States(store);
    const absl::Status status = session->Step().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("diverged at step 3"), HasSubstr("not finite is layers.0."),
                      Not(HasSubstr("state"))));
    EXPECT_EQ(Weights(store), weights);
    EXPECT_EQ(States(store), states);
  }
}

}  // namespace
}  // namespace plumb
