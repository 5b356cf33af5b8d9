// SPDX-License-Identifier: Apache-2.0
// Decodes several sequences together: each as if it were alone, to the bit, in every format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "runtime/base/rng.h"
#include "runtime/session/decode_session.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

TinyModel Study() {
  TinyModel model;
  model.context_length = 24;
  model.vocab_size = 27;
  model.n_head = model.n_kv_head = 4;
  model.d_model = 16;
  model.d_ff = 64;
  return model;
}

// Returns a model wide enough for products of several tasks and rows of several int8 groups.
TinyModel Wide() {
  TinyModel model;
  model.placement = "double_qk";
  model.norm = "layer_norm";
  model.positions = "ROPE";
  model.context_length = 40;
  model.vocab_size = 331;
  model.n_head = 4;
  model.n_kv_head = 2;
  model.d_model = 192;
  model.d_ff = 512;
  model.more = "mlp { gated: true activation: SILU bias: true } attention { bias: true }";
  return model;
}

// Returns a model of which every second layer has a window.
TinyModel Windowed() {
  TinyModel model = Study();
  model.positions = "ALIBI";
  model.more = "attention { window: \"5 * (layer % 2)\" }";
  return model;
}

struct Case {
  std::string name;
  TinyModel model;
  WeightFormat format;
  int threads;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class DecodeBatchTest : public ::testing::TestWithParam<Case> {
 protected:
  std::vector<float> Logits(const DecodeSession& decode, int64_t sequence) const {
    const float* logits = decode.logits(sequence);
    return {logits, logits + GetParam().model.vocab_size};
  }
  // Returns token i of sequence b.
  int32_t Token(int64_t b, int64_t i) const {
    return static_cast<int32_t>(
        RngStream(8, "tokens", static_cast<uint64_t>(b))
            .Below(static_cast<uint64_t>(i), static_cast<uint64_t>(GetParam().model.vocab_size)));
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime(GetParam().threads);
  const std::unique_ptr<ModelContext> context_ =
      MakeContext(runtime_.get(), GetParam().model.Text());
  const ParameterStore parameters_ = GenericParameters(*context_);
  const PackedWeights weights_{*context_, GetParam().format, parameters_, GetParam().threads};
};

TEST_P(DecodeBatchTest, BatchedSequencesEqualSingleSequences) {
  const int64_t steps = 6;
  for (const int64_t batch : {2, 5, 64}) {
    DecodeSession together(context_.get(), &weights_, batch, GetParam().threads);
    DecodeSession alone(context_.get(), &weights_, 1, 1);
    std::vector<std::vector<std::vector<float>>> expected;  // [sequence][step]
    for (int64_t b = 0; b < batch; ++b) {
      // Prompts of different lengths.
      std::vector<int32_t> prompt;
      for (int64_t i = 0; i < 1 + b % 3; ++i) prompt.push_back(Token(b, 100 + i));
      alone.Reset();
      ASSERT_TRUE(alone.Feed(prompt).ok());
      ASSERT_TRUE(together.Feed(b, prompt).ok());
      EXPECT_EQ(Logits(together, b), Logits(alone, 0));
      expected.emplace_back();
      for (int64_t i = 0; i < steps; ++i) {
        ASSERT_TRUE(alone.Feed({Token(b, i)}).ok());
        expected.back().push_back(Logits(alone, 0));
      }
    }
    for (int64_t i = 0; i < steps; ++i) {
      std::vector<int32_t> tokens;
      for (int64_t b = 0; b < batch; ++b) tokens.push_back(Token(b, i));
      ASSERT_TRUE(together.FeedBatch(tokens).ok());
      for (int64_t b = 0; b < batch; ++b) {
        EXPECT_EQ(Logits(together, b), expected[static_cast<size_t>(b)][static_cast<size_t>(i)])
            << "sequence " << b << " of " << batch << ", step " << i;
      }
    }
  }
}

// Calls in random order: prompts that sequences share or not, tokens for some of the sequences, and
// removed tokens.
TEST_P(DecodeBatchTest, RandomCallsEqualSingleSequences) {
  constexpr int64_t kSequences = 4;
  DecodeSession together(context_.get(), &weights_, kSequences, GetParam().threads);
  std::vector<std::unique_ptr<DecodeSession>> alone;
  for (int64_t b = 0; b < kSequences; ++b) {
    alone.push_back(std::make_unique<DecodeSession>(context_.get(), &weights_, 1, 1));
  }
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {4, 3, 2, 1, 0, 1, 2, 3, 4}};
  const RngStream random(12, "calls");
  uint64_t draws = 0;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random.Below(draws++, static_cast<uint64_t>(n)));
  };
  const auto truncate = [&](int64_t b, int64_t length) {
    together.Truncate(b, length);
    alone[static_cast<size_t>(b)]->Truncate(0, length);
  };
  const auto expect_equal = [&](int64_t b, int call) {
    EXPECT_EQ(Logits(together, b), Logits(*alone[static_cast<size_t>(b)], 0))
        << "sequence " << b << ", call " << call;
  };
  for (int call = 0; call < 600; ++call) {
    for (int64_t b = 0; b < kSequences; ++b) {
      if (together.length(b) == together.context_length()) truncate(b, 0);
    }
    const int64_t b = below(kSequences);
    const int64_t kind = below(8);
    if (kind < 2) {
      const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(below(2))];
      truncate(b, 0);
      ASSERT_TRUE(together.Feed(b, prompt).ok());
      ASSERT_TRUE(alone[static_cast<size_t>(b)]->Feed(prompt).ok());
      expect_equal(b, call);
    } else if (kind == 2) {
      truncate(b, below(together.length(b) + 1));
    } else {
      std::vector<int32_t> tokens;
      for (int64_t each = 0; each < kSequences; ++each) {
        tokens.push_back(below(kind) > 2 ? -1 : static_cast<int32_t>(below(5)));
      }
      ASSERT_TRUE(together.FeedBatch(tokens).ok());
      for (int64_t each = 0; each < kSequences; ++each) {
        const int32_t token = tokens[static_cast<size_t>(each)];
        if (token < 0) continue;
        ASSERT_TRUE(alone[static_cast<size_t>(each)]->Feed({token}).ok());
        expect_equal(each, call);
      }
    }
  }
}

TEST_P(DecodeBatchTest, RefusesStepsBeyondTheContext) {
  DecodeSession together(context_.get(), &weights_, 2, GetParam().threads);
  const std::vector<int32_t> full(static_cast<size_t>(together.context_length()), 1);
  ASSERT_TRUE(together.Feed(0, {1}).ok());
  ASSERT_TRUE(together.Feed(1, full).ok());
  EXPECT_EQ(together.FeedBatch({1, 1}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(together.length(0), 1);
  EXPECT_EQ(together.FeedBatch({1}).code(), absl::StatusCode::kInvalidArgument);
  together.Reset(1);
  EXPECT_TRUE(together.FeedBatch({1, 1}).ok());
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [name, format] :
       {std::pair<const char*, WeightFormat>{"F32", WeightFormat::kF32},
        {"Bf16", WeightFormat::kBf16},
        {"Int8", WeightFormat::kInt8}}) {
    cases.push_back({std::string("Study") + name, Study(), format, 1});
    cases.push_back({std::string("Wide") + name, Wide(), format, 2});
    cases.push_back({std::string("Windowed") + name, Windowed(), format, 2});
    cases.push_back({std::string("Linear") + name, WithLinearAttention(Wide()), format, 2});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, DecodeBatchTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace plumb
