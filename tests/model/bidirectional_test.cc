// SPDX-License-Identifier: Apache-2.0
// Tests of a small BERT: a bidirectional model with token types and sequences of several lengths.
// Gradients equal central differences, a sequence computes the same bits alone and in any batch,
// and bits depend neither on the number of threads nor on recomputation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/evaluator.h"
#include "runtime/session/gradient_pass.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr int64_t kRows = 3, kSeq = 11;
constexpr int64_t kLengths[kRows] = {11, 1, 6};

constexpr char kBert[] = R"pbtxt(
  n_layer: 2 n_head: 4 d_model: 16 d_ff: "12" vocab_size: 7 context_length: 11
  bidirectional: true token_types: 3 tie_embeddings: true head_bias: true
  mlp { activation: GELU bias: true }
  placement {
    name: "bert"
    linear { name: "head_dense" bias: true }
    begin: "x = embedding_norm(x + 0.3 * shift(x, 1) + position / 20)"
    each: "x = norm(x + f(x))"
    end: "h = head_dense(x)"
    end: "x = head_norm(0.5 * h * (1 + erf(h / sqrt(2))))"
  }
  block { placement: "bert" norm: "layer_norm" })pbtxt";

struct Kind {
  std::string name;
  std::string attention;  // fields of `attention`
};
void PrintTo(const Kind& kind, std::ostream* os) { *os << kind.name; }

// Concatenated ids of all rows.
struct Ids {
  std::vector<int32_t> tokens, positions, targets, types;

  BatchIds ToBatch() const {
    return {tokens.data(), positions.data(), targets.data(), types.data()};
  }
};

// Returns `rows` rows from row `begin`, each padded to `seq` tokens. Every third token has a
// target.
Ids MakeIds(int64_t begin, int64_t rows, int64_t seq) {
  Ids ids;
  for (int64_t row = begin; row < begin + rows; ++row) {
    const RngStream stream(1, "ids", static_cast<uint64_t>(row));
    for (int64_t t = 0; t < seq; ++t) {
      const bool is_token = t < kLengths[row];
      const auto draw = static_cast<uint64_t>(3 * t);
      ids.tokens.push_back(is_token ? static_cast<int32_t>(stream.Below(draw, 7)) : -1);
      ids.types.push_back(is_token ? static_cast<int32_t>(stream.Below(draw + 1, 3)) : 0);
      ids.targets.push_back(is_token && t % 3 == 0 ? static_cast<int32_t>(stream.Below(draw + 2, 7))
                                                   : -1);
      ids.positions.push_back(static_cast<int32_t>(t));
    }
  }
  return ids;
}

class BidirectionalTest : public ::testing::TestWithParam<Kind> {
 protected:
  struct Result {
    double loss = 0;
    std::vector<float> logits, gradients;
  };
  Result Run(const Ids& ids, int64_t rows, int64_t seq, int threads, WeightFormat format) {
    const PackedWeights weights(*context_, format, parameters_);
    GradientPass pass(context_.get(), &parameters_, &weights, rows, seq, /*logits=*/false, threads);
    const auto loss = pass.Run(ids.ToBatch(), seq, nullptr);
    EXPECT_TRUE(loss.ok()) << loss.status();
    Evaluator evaluator(context_.get(), &weights, rows, seq, /*logits=*/true, threads);
    const auto evaluated = evaluator.Run(ids.ToBatch(), seq);
    EXPECT_TRUE(evaluated.ok()) << evaluated.status();
    EXPECT_NEAR(*loss, *evaluated, (format == WeightFormat::kF32 ? 1e-6 : 1e-2) * *evaluated);
    const int64_t logits = rows * seq * context_->model.dims.vocab_size;
    return {*loss,
            {evaluator.logits(), evaluator.logits() + logits},
            {pass.gradients(), pass.gradients() + parameters_.layout().size}};
  }

  Graph Build(bool gradients) const {
    BuildOptions options;
    options.program = gradients ? Program::kTrain : Program::kEval;
    options.batch = kRows;
    options.seq = kSeq;
    options.output_logits = gradients;
    if (gradients) return *BuildProgram(*context_, options, true);
    return *BuildForward(context_->model, context_->parameters, *context_->ops, options);
  }

  ReferenceTensors MakeFeeds(const Ids& ids) const {
    ReferenceTensors feeds = Feeds(parameters_, Tokens(kRows, std::vector<int32_t>(kSeq, 0)));
    feeds["tokens"].i = ids.tokens;
    for (int32_t& token : feeds["tokens"].i) token = std::max(token, 0);
    feeds["targets"].i = ids.targets;
    feeds[kTypesInput] = {I32({kRows, kSeq}), {}, ids.types};
    feeds[kLengthsInput] = {I32({kRows}), {}, {std::begin(kLengths), std::end(kLengths)}};
    return feeds;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime(3);
  std::unique_ptr<ModelContext> context_ =
      MakeContext(runtime_.get(), absl::StrCat(kBert, " attention { ", GetParam().attention, " }"));
  const ParameterStore parameters_ = GenericParameters(*context_);
};

// The direction is random in every tensor, so a wrong element shows with probability one.
TEST_P(BidirectionalTest, GradientsEqualCentralDifferencesAndTheReference) {
  const Ids ids = MakeIds(0, kRows, kSeq);
  ReferenceTensors feeds = MakeFeeds(ids);
  const auto analytic = ReferenceRun(Build(true), feeds);
  ASSERT_TRUE(analytic.ok()) << analytic.status();
  const Graph forward = Build(false);
  std::vector<double> gradients(static_cast<size_t>(parameters_.layout().size), 0);
  for (const ParameterLayout::Entry& entry : parameters_.layout().entries) {
    const std::vector<double>& gradient = analytic->at("grad." + entry.name).f;
    std::copy(gradient.begin(), gradient.end(), gradients.begin() + entry.begin);
    const RngStream stream(7, entry.name);
    std::vector<double>& values = feeds[entry.name].f;
    const std::vector<double> start = values;
    double expected = 0;
    for (size_t i = 0; i < gradient.size(); ++i) expected += stream.Normal(i) * gradient[i];
    const auto loss_at = [&](double step) {
      for (size_t i = 0; i < start.size(); ++i) values[i] = start[i] + step * stream.Normal(i);
      return ReferenceRun(forward, feeds)->at("loss").f[0];
    };
    const double h = 2e-4;
    const double difference =
        (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
    EXPECT_NEAR(difference, expected, 1e-6) << entry.name;
    values = start;
  }
  const Result result = Run(ids, kRows, kSeq, 1, WeightFormat::kF32);
  EXPECT_NEAR(result.loss, analytic->at("loss").f[0], 1e-5);
  EXPECT_LE(RelativeError(result.logits, analytic->at("logits").f), 1e-5);
  EXPECT_LE(RelativeError(result.gradients, gradients), 1e-5);
  const Result bf16 = Run(ids, kRows, kSeq, 1, WeightFormat::kBf16);
  EXPECT_LE(RelativeError(bf16.gradients, gradients), 0.1);
}

TEST_P(BidirectionalTest, SameBitsInAnyBatch) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    const Result together = Run(MakeIds(0, kRows, kSeq), kRows, kSeq, 2, format);
    const int64_t vocab = context_->model.dims.vocab_size;
    for (int64_t row = 0; row < kRows; ++row) {
      const Result alone = Run(MakeIds(row, 1, kLengths[row]), 1, kLengths[row], 1, format);
      const auto begin = together.logits.begin() + row * kSeq * vocab;
      EXPECT_EQ(std::vector<float>(begin, begin + kLengths[row] * vocab), alone.logits) << row;
    }
    // The result does not depend on the types of padding.
    Ids other = MakeIds(0, kRows, kSeq);
    for (size_t i = 0; i < other.tokens.size(); ++i) {
      if (other.tokens[i] < 0) other.types[i] = 2;
    }
    const Result same = Run(other, kRows, kSeq, 2, format);
    EXPECT_EQ(same.gradients, together.gradients);
  }
}

// Unlike in a causal model, the first token's logits depend on the last token.
TEST_P(BidirectionalTest, TokensSeeLaterTokensAndTypes) {
  const Ids ids = MakeIds(0, 1, kSeq);
  const Result before = Run(ids, 1, kSeq, 1, WeightFormat::kF32);
  Ids token = ids, type = ids;
  token.tokens.back() = (token.tokens.back() + 1) % 7;
  type.types.back() = (type.types.back() + 1) % 3;
  for (const Ids& other : {token, type}) {
    const Result after = Run(other, 1, kSeq, 1, WeightFormat::kF32);
    EXPECT_NE(after.logits[0], before.logits[0]);
  }
  BatchIds no_types = ids.ToBatch();
  no_types.types = nullptr;
  Ids zeros = ids;
  zeros.types.assign(zeros.types.size(), 0);
  const PackedWeights weights(*context_, WeightFormat::kF32, parameters_);
  Evaluator evaluator(context_.get(), &weights, 1, kSeq, /*logits=*/false, 1);
  EXPECT_EQ(*evaluator.Run(no_types, kSeq), *evaluator.Run(zeros.ToBatch(), kSeq));
}

TEST_P(BidirectionalTest, ThreadsAndRecomputationChangeNoBit) {
  const Ids ids = MakeIds(0, kRows, kSeq);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    const Result one = Run(ids, kRows, kSeq, 1, format), three = Run(ids, kRows, kSeq, 3, format);
    EXPECT_EQ(one.loss, three.loss);
    EXPECT_EQ(one.logits, three.logits);
    EXPECT_EQ(one.gradients, three.gradients);
    context_->optimize.recompute_blocks = true;
    const Result again = Run(ids, kRows, kSeq, 1, format);
    context_->optimize.recompute_blocks = false;
    EXPECT_EQ(again.gradients, one.gradients);
  }
}

TEST_P(BidirectionalTest, CannotDecode) {
  const PackedWeights weights(*context_, WeightFormat::kF32, parameters_);
  DecodeSession decode(context_.get(), &weights, 1, 1);
  const absl::Status status = decode.Feed({1, 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("bidirectional"), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(
    All, BidirectionalTest,
    ::testing::Values(Kind{"plain", "bias: true"}, Kind{"cap", "score_cap: \"1.5\""},
                      Kind{"all", "score_cap: \"2\" sinks: true"},
                      Kind{"window", "window: \"3 * (layer == 1)\""},
                      Kind{"all_in_a_window",
                           "window: \"7 + layer\" score_cap: \"2\" sinks: true"}),
    [](const auto& test) { return test.param.name; });

// A causal model with token types can decode, and every token then has type 0.
TEST(TokenTypesTest, DecodingHasTypeZero) {
  const auto runtime = MakeRuntime();
  const auto context =
      MakeContext(runtime.get(),
                  absl::StrCat("n_layer: 2 n_head: 2 d_model: 8 vocab_size: 7 context_length: 9 "
                               "token_types: 2 block { placement: \"pre\" norm: \"rms_norm\" }"));
  const ParameterStore parameters = GenericParameters(*context);
  const PackedWeights weights(*context, WeightFormat::kF32, parameters);
  const std::vector<int32_t> tokens = RandomTokens(1, 9, 7)[0], targets(9, 0);
  std::vector<int32_t> positions(9);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  Evaluator evaluator(context.get(), &weights, 1, 9, /*logits=*/true, 1);
  ASSERT_TRUE(evaluator.Run({tokens.data(), positions.data(), targets.data()}, 9).ok());
  DecodeSession decode(context.get(), &weights, 1, 1);
  ASSERT_TRUE(decode.Feed(absl::MakeConstSpan(tokens).subspan(0, 5)).ok());
  for (size_t t = 5; t < 9; ++t) ASSERT_TRUE(decode.Feed({tokens[t]}).ok());
  const std::vector<float> want(evaluator.logits() + 8 * 7, evaluator.logits() + 9 * 7);
  EXPECT_LE(RelativeError({decode.logits(0), decode.logits(0) + 7}, want), 1e-5);
}

}  // namespace
}  // namespace plumb
