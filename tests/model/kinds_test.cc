// SPDX-License-Identifier: Apache-2.0
// Tests of kinds and fields of sublayers beyond plain attention and MLPs. Each must have the
// properties of every model: decoding equals the full pass, gradients equal central differences,
// and bits depend neither on the number of threads nor on recomputation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/rng.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/evaluator.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr int64_t kContext = 14;

struct Kind {
  std::string name;
  std::string text;  // fields of the model besides some dimensions
  // True if it chooses experts. Rounding to bf16 may change the choice, which makes results jump.
  bool chooses = false;
  uint64_t seed = 1;  // of parameters that are far enough from a jump or a kink for differences
};
void PrintTo(const Kind& kind, std::ostream* os) { *os << kind.name; }

// Returns the models of tests/model/kinds.
std::vector<Kind> Kinds() {
  const std::set<std::string> choosing = {"corrected_groups", "expert_statements",
                                          "experts",          "groups",
                                          "shared_expert",    "sigmoid_experts"};
  const std::set<std::string> second_seed = {"experts", "gated_delta_net", "statement_activations"};
  std::vector<Kind> kinds;
  for (const auto& file :
       std::filesystem::directory_iterator(PLUMB_SOURCE_DIR "/tests/model/kinds")) {
    const std::string name = file.path().stem();
    kinds.push_back({name, *ReadFile(file.path().string()), choosing.count(name) > 0,
                     second_seed.count(name) > 0 ? 2u : 1u});
  }
  std::sort(kinds.begin(), kinds.end(),
            [](const Kind& a, const Kind& b) { return a.name < b.name; });
  return kinds;
}

class KindsTest : public ::testing::TestWithParam<Kind> {
 protected:
  std::vector<int32_t> Sequence(uint64_t seed = 1) const {
    return RandomTokens(1, kContext, vocab(), seed)[0];
  }
  int64_t vocab() const { return context_->model.dims.vocab_size; }
  std::vector<float> Logits(const DecodeSession& decode, int64_t sequence = 0) const {
    return {decode.logits(sequence), decode.logits(sequence) + vocab()};
  }

  // Returns the logits [tokens, vocab] of the full pass.
  std::vector<float> FullPass(const PackedWeights& weights, std::vector<int32_t> tokens) {
    Evaluator evaluator(context_.get(), &weights, 1, kContext, /*logits=*/true, 1);
    std::vector<int32_t> positions(tokens.size()), targets(tokens.size(), 0);
    for (size_t i = 0; i < tokens.size(); ++i) positions[i] = static_cast<int32_t>(i);
    const auto loss = evaluator.Run({tokens.data(), positions.data(), targets.data()},
                                    static_cast<int64_t>(tokens.size()));
    EXPECT_TRUE(loss.ok()) << loss.status();
    return {evaluator.logits(), evaluator.logits() + static_cast<int64_t>(tokens.size()) * vocab()};
  }
  // Returns the row of logits after n tokens.
  std::vector<float> Row(const std::vector<float>& logits, size_t n) const {
    const auto end = logits.begin() + static_cast<int64_t>(n) * vocab();
    return {end - vocab(), end};
  }

  // Builds the forward pass or the pass with gradients of a training step, which may have an
  // "objective" besides the loss.
  Graph Build(bool gradients, int64_t batch, int64_t seq) const {
    BuildOptions options;
    options.batch = batch;
    options.seq = seq;
    options.output_logits = gradients;
    if (gradients) return *BuildProgram(*context_, options, true);
    return *BuildForward(context_->model, context_->parameters, *context_->ops, options);
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime(3);
  std::unique_ptr<ModelContext> context_ =
      MakeContext(runtime_.get(),
                  absl::StrCat("d_model: 16 d_ff: \"12\" vocab_size: 7 context_length: ", kContext,
                               "\n", GetParam().text));
  const ParameterStore parameters_ = GenericParameters(*context_, GetParam().seed);
};

TEST_P(KindsTest, DecodingEqualsTheFullPass) {
  struct Format {
    WeightFormat format;
    double tolerance;
  };
  for (const Format& f : {Format{WeightFormat::kF32, 1e-5}, Format{WeightFormat::kBf16, 8e-2},
                          Format{WeightFormat::kInt8, 1e-3}}) {
    if (f.format == WeightFormat::kBf16 && GetParam().chooses) continue;
    const PackedWeights weights(*context_, f.format, parameters_);
    const std::vector<int32_t> tokens = Sequence();
    const std::vector<float> full = FullPass(weights, tokens);
    DecodeSession decode(context_.get(), &weights, 1, 1);
    const auto feed = [&](size_t from, size_t to) {
      ASSERT_TRUE(decode.Feed(absl::MakeConstSpan(tokens).subspan(from, to - from)).ok());
      EXPECT_LE(RelativeError(Logits(decode), Row(full, to)), f.tolerance)
          << "tokens " << from << " to " << to;
    };
    for (size_t n = 1; n <= tokens.size(); ++n) feed(n - 1, n);
    for (size_t n = 2; n <= tokens.size(); ++n) {
      decode.Reset();
      feed(0, n);
      decode.Reset();
      feed(0, n / 2);
      feed(n / 2, n);
    }
    // Some tokens are truncated. Then others are fed in their place, truncated, and the first ones
    // fed again.
    const std::vector<int32_t> other = Sequence(2);
    decode.Truncate(0, 5);
    ASSERT_TRUE(decode.Feed(absl::MakeConstSpan(other).subspan(5, 3)).ok());
    decode.Truncate(0, 5);
    feed(5, 6);
    feed(6, 9);
    decode.Truncate(0, 7);
    feed(7, 8);
  }
}

TEST_P(KindsTest, BatchedSequencesEqualSingleSequences) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
    const PackedWeights weights(*context_, format, parameters_);
    DecodeSession together(context_.get(), &weights, 3, 3), alone(context_.get(), &weights, 1, 1);
    for (int64_t b = 0; b < 3; ++b) {
      const std::vector<int32_t> tokens = Sequence(static_cast<uint64_t>(b + 1));
      ASSERT_TRUE(
          together.Feed(b, absl::MakeConstSpan(tokens).subspan(0, static_cast<size_t>(4 - b)))
              .ok());
    }
    for (size_t i = 0; i < 5; ++i) {
      std::vector<int32_t> next;
      for (int64_t b = 0; b < 3; ++b) {
        next.push_back(Sequence(static_cast<uint64_t>(b + 1))[i + 4 - static_cast<size_t>(b)]);
      }
      ASSERT_TRUE(together.FeedBatch(next).ok());
    }
    for (int64_t b = 0; b < 3; ++b) {
      const std::vector<int32_t> tokens = Sequence(static_cast<uint64_t>(b + 1));
      const size_t prompt = static_cast<size_t>(4 - b);
      alone.Reset();
      ASSERT_TRUE(alone.Feed(absl::MakeConstSpan(tokens).subspan(0, prompt)).ok());
      for (size_t i = prompt; i < prompt + 5; ++i) ASSERT_TRUE(alone.Feed({tokens[i]}).ok());
      EXPECT_EQ(Logits(together, b), Logits(alone)) << "sequence " << b;
    }
  }
}

// The direction is random in every tensor, so a wrong element shows with probability one.
TEST_P(KindsTest, GradientsEqualCentralDifferencesAndTheReference) {
  constexpr int64_t kBatch = 2, kSeq = 6;
  const Tokens tokens = RandomTokens(kBatch, kSeq, vocab());
  ReferenceTensors feeds = Feeds(parameters_, tokens);
  const auto analytic = ReferenceRun(Build(true, kBatch, kSeq), feeds);
  ASSERT_TRUE(analytic.ok()) << analytic.status();
  double largest = 0;
  for (const ParameterSpec& parameter : context_->parameters) {
    for (const double g : analytic->at("grad." + parameter.name).f) {
      largest = std::max(largest, std::fabs(g));
    }
  }
  ASSERT_GT(largest, 1e-3);
  const Graph forward = Build(false, kBatch, kSeq);
  for (const ParameterSpec& parameter : context_->parameters) {
    const std::vector<double>& gradient = analytic->at("grad." + parameter.name).f;
    const RngStream stream(7, parameter.name);
    std::vector<double>& values = feeds[parameter.name].f;
    const std::vector<double> start = values;
    double expected = 0;
    for (size_t i = 0; i < gradient.size(); ++i) expected += stream.Normal(i) * gradient[i];
    const auto loss_at = [&](double step) {
      for (size_t i = 0; i < start.size(); ++i) values[i] = start[i] + step * stream.Normal(i);
      const auto outputs = ReferenceRun(forward, feeds);
      return outputs->at(outputs->count("objective") > 0 ? "objective" : "loss").f[0];
    };
    // The five-point formula has an error of order h^4.
    const double h = 2e-4;
    const double difference =
        (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
    EXPECT_NEAR(difference, expected, 1e-6 * largest) << parameter.name;
    values = start;
  }

  const auto outputs = RunBatch(*context_, parameters_, tokens, /*with_gradients=*/true, 1);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_LE(RelativeError(outputs->logits, analytic->at("logits").f), 1e-5);
  std::vector<double> gradients(outputs->gradients.size(), 0);
  for (const ParameterLayout::Entry& entry : parameters_.layout().entries) {
    const std::vector<double>& gradient = analytic->at("grad." + entry.name).f;
    std::copy(gradient.begin(), gradient.end(), gradients.begin() + entry.begin);
  }
  EXPECT_LE(RelativeError(outputs->gradients, gradients), 1e-5);
}

TEST_P(KindsTest, ThreadsAndRecomputationChangeNoBit) {
  const Tokens tokens = RandomTokens(3, kContext, vocab());
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    const auto run = [&](int threads) {
      return RunBatch(*context_, parameters_, tokens, /*with_gradients=*/true, threads, nullptr,
                      format);
    };
    const auto one = run(1), three = run(3);
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(three.ok()) << three.status();
    EXPECT_EQ(one->gradients, three->gradients);
    EXPECT_EQ(one->loss, three->loss);
    context_->optimize.recompute_blocks = true;
    const auto again = run(1);
    context_->optimize.recompute_blocks = false;
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->gradients, one->gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KindsTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace plumb
