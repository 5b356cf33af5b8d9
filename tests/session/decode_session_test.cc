// SPDX-License-Identifier: Apache-2.0
// Compares decoding with the full forward pass: the same logits at every position, for every
// shipped placement, for any division of the tokens into calls.
#include "runtime/session/decode_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kContext = 12;

class DecodeEveryPlacementTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Expect(const TinyModel& model) {
    const auto runtime = MakeRuntime();
    const auto context = MakeContext(runtime.get(), model.Text());
    const ParameterStore parameters = GenericParameters(*context);
    const std::vector<int32_t> tokens = RandomTokens(1, kContext, model.vocab_size)[0];
    const auto full = RunBatch(*context, parameters, {tokens}, /*with_gradients=*/true, 1);
    ASSERT_TRUE(full.ok()) << full.status();
    DecodeSession decode(context.get(), &parameters, 1);
    float largest = 0;
    for (float logit : full->logits) largest = std::max(largest, std::fabs(logit));
    // Compares the logits after n tokens with those of the full pass at position n - 1.
    const auto expect_at = [&](size_t n, const std::string& how) {
      ASSERT_EQ(decode.length(), static_cast<int64_t>(n));
      const size_t vocab = static_cast<size_t>(model.vocab_size);
      for (size_t v = 0; v < vocab; ++v) {
        ASSERT_NEAR(decode.logits()[v], full->logits[(n - 1) * vocab + v], 1e-5f * largest)
            << how << " at " << n;
      }
    };
    const auto feed = [&](size_t from, size_t to) {
      const auto status = decode.Feed(absl::MakeConstSpan(tokens).subspan(from, to - from));
      ASSERT_TRUE(status.ok()) << status;
    };
    for (size_t n = 1; n <= tokens.size(); ++n) {
      feed(n - 1, n);
      expect_at(n, "token by token");
    }
    for (size_t n = 2; n <= tokens.size(); ++n) {
      decode.Reset();
      feed(0, n);
      expect_at(n, "prefill");
      decode.Reset();
      feed(0, n / 2);
      feed(n / 2, n);
      expect_at(n, "prefill in two");
    }
  }
};

TEST_P(DecodeEveryPlacementTest, AgreesWithTheFullPassUnderLearnedPositions) {
  TinyModel model;
  model.placement = GetParam();
  model.n_layer = model.placement == "swin_v2" ? 6 : 2;
  model.context_length = kContext;
  Expect(model);
}

TEST_P(DecodeEveryPlacementTest, AgreesWithTheFullPassUnderRopeAndGroupedHeads) {
  TinyModel model;
  model.placement = GetParam();
  model.norm = "layer_norm";
  model.n_layer = model.placement == "swin_v2" ? 6 : 2;
  model.context_length = kContext;
  model.positions = "ROPE";
  model.n_head = 4;
  model.d_model = 16;
  model.more = "mlp { gated: true activation: SILU bias: true } attention { bias: true }";
  Expect(model);
}

INSTANTIATE_TEST_SUITE_P(All, DecodeEveryPlacementTest, ::testing::ValuesIn(ShippedPlacements()),
                         TestName);

class DecodeSessionTest : public ::testing::Test {
 protected:
  explicit DecodeSessionTest() : context_(MakeContext(runtime_.get(), TinyModel().Text())) {}

  std::vector<float> Logits(const DecodeSession& decode) {
    return {decode.logits(), decode.logits() + 5};
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  const std::unique_ptr<ModelContext> context_;
  const ParameterStore parameters_ = GenericParameters(*context_);
};

TEST_F(DecodeSessionTest, RefusesTooLongSequences) {
  DecodeSession decode(context_.get(), &parameters_, 1);
  ASSERT_TRUE(decode.Feed({1, 2, 3, 4, 0}).ok());
  const std::vector<float> before = Logits(decode);
  const absl::Status status = decode.Feed({1, 2, 3, 4});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("context_length 8"));
  EXPECT_EQ(decode.length(), 5);
  EXPECT_EQ(Logits(decode), before);
  EXPECT_TRUE(decode.Feed({1, 2, 3}).ok());
  EXPECT_EQ(decode.length(), decode.context_length());
  EXPECT_EQ(decode.Feed({1}).code(), absl::StatusCode::kOutOfRange);
}

TEST_F(DecodeSessionTest, RefusesNoTokensAndUnknownTokens) {
  DecodeSession decode(context_.get(), &parameters_, 1);
  EXPECT_EQ(decode.Feed({}).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(decode.Feed({1, 2}).ok());
  EXPECT_FALSE(decode.Feed({3, 5, 1}).ok());
  EXPECT_FALSE(decode.Feed({-1}).ok());
  EXPECT_EQ(decode.length(), 2);
  ASSERT_TRUE(decode.Feed({3}).ok());
  const std::vector<float> logits = Logits(decode);
  decode.Reset();
  ASSERT_TRUE(decode.Feed({1, 2}).ok());
  ASSERT_TRUE(decode.Feed({3}).ok());
  EXPECT_EQ(Logits(decode), logits);
}

// Layers with windows 3 and 5, whose caches are rings, and one without a window.
std::string WindowedModel() {
  TinyModel model;
  model.n_layer = 3;
  model.context_length = 600;
  model.positions = "ROPE";
  model.more = "attention { window: \"(1 + 2 * layer) * (layer < 3)\" }";
  return model.Text();
}

std::string LinearAttentionModel() {
  TinyModel model;
  model.context_length = 600;
  return WithLinearAttention(model).Text();
}

TEST_F(DecodeSessionTest, WindowLimitsTheCache) {
  const auto context = MakeContext(runtime_.get(), WindowedModel());
  BuildOptions options;
  options.program = Program::kCached;
  const auto graph = BuildForward(context->model, context->parameters, *context->ops, options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto rows = [&graph](int layer) {
    const ValueId cache = graph->FindValue(absl::StrCat("layers.", layer, ".attention.k_cache"));
    return graph->value(cache).type.shape[2];
  };
  EXPECT_EQ(rows(0), 3);
  EXPECT_EQ(rows(1), 5);
  EXPECT_EQ(rows(2), 600);
}

class PassedTokensTest : public DecodeSessionTest,
                         public ::testing::WithParamInterface<std::string> {};

// Feeds chunks and single tokens, also after truncation to tokens whose rows were overwritten.
TEST_P(PassedTokensTest, AreRecomputedAfterTruncation) {
  const auto context = MakeContext(runtime_.get(), GetParam());
  const ParameterStore parameters = GenericParameters(*context);
  const std::vector<int32_t> tokens = RandomTokens(1, 560, 5, 1)[0];
  const std::vector<int32_t> others = RandomTokens(1, 560, 5, 2)[0];
  const PackedWeights weights(*context, WeightFormat::kF32, parameters);
  for (const int64_t batch : {1, 2}) {
    DecodeSession decode(context.get(), &weights, batch, 1);
    const int64_t sequence = batch - 1;
    const auto feed = [&](const std::vector<int32_t>& from, size_t count) {
      const size_t at = static_cast<size_t>(decode.length(sequence));
      ASSERT_TRUE(decode.Feed(sequence, absl::MakeConstSpan(from).subspan(at, count)).ok());
    };
    // Compares a sequence of the first `kept` tokens and others.
    const auto expect = [&](size_t kept) {
      std::vector<int32_t> sequence_tokens(tokens.begin(),
                                           tokens.begin() + static_cast<int64_t>(kept));
      const size_t length = static_cast<size_t>(decode.length(sequence));
      for (size_t i = kept; i < length; ++i) sequence_tokens.push_back(others[i]);
      const auto full =
          RunBatch(*context, parameters, {sequence_tokens}, /*with_gradients=*/true, 1);
      ASSERT_TRUE(full.ok()) << full.status();
      const std::vector<float> want(full->logits.end() - 5, full->logits.end());
      const std::vector<float> got(decode.logits(sequence), decode.logits(sequence) + 5);
      EXPECT_LE(RelativeError(got, want), 1e-5) << "kept " << kept << " of " << length;
    };
    feed(tokens, 530);
    expect(530);
    for (int i = 0; i < 9; ++i) feed(tokens, 1);
    expect(539);
    for (const size_t kept : {size_t{538}, size_t{537}, size_t{400}, size_t{2}}) {
      decode.Truncate(sequence, static_cast<int64_t>(kept));
      feed(others, 1);
      expect(kept);
      feed(others, 6);
      expect(kept);
      decode.Truncate(sequence, static_cast<int64_t>(kept));
      feed(tokens, 560 - kept);
      expect(560);
    }
  }
}

// A feed that fails has written rows; the sequence must continue as if it had not run.
TEST_P(PassedTokensTest, AreKeptByAFailedFeed) {
  const auto context = MakeContext(runtime_.get(), GetParam());
  const ParameterStore parameters = GenericParameters(*context);
  std::vector<int32_t> tokens = RandomTokens(1, 600, 5)[0];
  DecodeSession decode(context.get(), &parameters, 1), fresh(context.get(), &parameters, 1);
  const auto part = [&tokens](size_t from, size_t to) {
    return absl::MakeConstSpan(tokens).subspan(from, to - from);
  };
  ASSERT_TRUE(decode.Feed(part(0, 20)).ok());
  const int32_t right = std::exchange(tokens[550], 5);
  EXPECT_FALSE(decode.Feed(part(20, 600)).ok());  // in the second chunk
  tokens[550] = right;
  EXPECT_EQ(decode.length(), 20);
  ASSERT_TRUE(decode.Feed(part(20, 40)).ok());
  ASSERT_TRUE(fresh.Feed(part(0, 20)).ok());
  ASSERT_TRUE(fresh.Feed(part(20, 40)).ok());
  EXPECT_EQ(Logits(decode), Logits(fresh));
}

INSTANTIATE_TEST_SUITE_P(All, PassedTokensTest,
                         ::testing::Values(WindowedModel(), LinearAttentionModel()),
                         [](const auto& at) { return at.index == 0 ? "Windows" : "States"; });

}  // namespace
}  // namespace plumb
