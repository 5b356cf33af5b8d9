// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenSampler Sampler(double temperature, int top_k, double top_p, int32_t vocab_size) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  absl::StatusOr<TokenSampler> sampler = TokenSampler::Create(options, vocab_size);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

// Returns the count of each token in n draws.
std::vector<int> Count(TokenSampler sampler, const std::vector<float>& logits, int n) {
  const RngStream stream(5, "test");
  std::vector<int> count(logits.size());
  for (int i = 0; i < n; ++i) {
    const absl::StatusOr<int32_t> token =
        sampler.Draw(logits.data(), stream, static_cast<uint64_t>(i));
    EXPECT_TRUE(token.ok());
    ++count[static_cast<size_t>(*token)];
  }
  return count;
}

std::set<size_t> Drawn(const std::vector<int>& count) {
  std::set<size_t> drawn;
  for (size_t i = 0; i < count.size(); ++i) {
    if (count[i] > 0) drawn.insert(i);
  }
  return drawn;
}

TEST(TokenSamplerTest, TemperatureZeroIsGreedy) {
  TokenSampler sampler = Sampler(0, 0, 1, 4);
  const std::vector<float> logits = {-1, 2, 2, 0};
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(*sampler.Draw(logits.data(), RngStream(i, "test"), i), 1);
  }
}

TEST(TokenSamplerTest, DrawsFollowTheSoftmaxAtItsTemperature) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  constexpr int kDraws = 200000;
  for (double temperature : {0.5, 1.0, 2.0}) {
    const std::vector<int> count = Count(Sampler(temperature, 0, 1, 3), logits, kDraws);
    double total = 0;
    for (float logit : logits) total += std::exp(logit / temperature);
    for (size_t i = 0; i < 3; ++i) {
      const double p = std::exp(logits[i] / temperature) / total;
      // Five standard deviations of a count; the draws are fixed, so the test is deterministic.
      EXPECT_NEAR(count[i], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)));
    }
  }
}

TEST(TokenSamplerTest, TopKKeepsTheLikeliest) {
  const std::vector<float> logits = {1, 3, 2, 2, 0};
  EXPECT_THAT(Drawn(Count(Sampler(1, 1, 1, 5), logits, 500)), ElementsAre(1));
  EXPECT_THAT(Drawn(Count(Sampler(1, 2, 1, 5), logits, 500)), ElementsAre(1, 2));
  EXPECT_THAT(Drawn(Count(Sampler(1, 3, 1, 5), logits, 500)), ElementsAre(1, 2, 3));
  EXPECT_THAT(Drawn(Count(Sampler(1, 99, 1, 5), logits, 5000)), ElementsAre(0, 1, 2, 3, 4));
}

TEST(TokenSamplerTest, TopPKeepsTheSmallestNucleus) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f),
                                     std::log(0.125f)};
  EXPECT_THAT(Drawn(Count(Sampler(1, 0, 0.4, 4), logits, 2000)), ElementsAre(1));
  EXPECT_THAT(Drawn(Count(Sampler(1, 0, 0.6, 4), logits, 2000)), ElementsAre(1, 2));
  EXPECT_THAT(Drawn(Count(Sampler(1, 0, 0.8, 4), logits, 2000)), ElementsAre(0, 1, 2));
  EXPECT_THAT(Drawn(Count(Sampler(1, 0, 0.99, 4), logits, 2000)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Drawn(Count(Sampler(1, 0, 1e-300, 4), logits, 2000)), ElementsAre(1));
  // The share is of the tokens that top_k kept: 0.5 of 0.75 is two thirds.
  EXPECT_THAT(Drawn(Count(Sampler(1, 2, 0.6, 4), logits, 2000)), ElementsAre(1));
  // The temperature is applied before: at 0.5 the likeliest has 0.25 / 0.34375.
  EXPECT_THAT(Drawn(Count(Sampler(0.5, 0, 0.7, 4), logits, 2000)), ElementsAre(1));
}

TEST(TokenSamplerTest, ADrawDependsOnItsIndexAlone) {
  const std::vector<float> logits = {0.3f, 0.1f, 0.2f, 0.9f, 0.5f};
  const RngStream stream(9, "sample");
  TokenSampler first = Sampler(0.8, 4, 0.9, 5);
  std::vector<int32_t> forward, backward(50);
  for (uint64_t i = 0; i < 50; ++i) forward.push_back(*first.Draw(logits.data(), stream, i));
  TokenSampler second = Sampler(0.8, 4, 0.9, 5);
  for (uint64_t i = 50; i-- > 0;) backward[i] = *second.Draw(logits.data(), stream, i);
  EXPECT_EQ(forward, backward);
  EXPECT_GT(std::set<int32_t>(forward.begin(), forward.end()).size(), 1u);
}

TEST(TokenSamplerTest, ExtremeLogitsAreADistribution) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> logits = {-kMax, kMax, -kMax};
  EXPECT_THAT(Drawn(Count(Sampler(1, 0, 1, 3), logits, 100)), ElementsAre(1));
  EXPECT_THAT(Drawn(Count(Sampler(5e-324, 0, 1, 3), logits, 100)), ElementsAre(1));
  EXPECT_THAT(Drawn(Count(Sampler(1e308, 0, 1, 3), logits, 1000)), ElementsAre(0, 1, 2));
  EXPECT_THAT(Drawn(Count(Sampler(1, 0, 1, 1), {5}, 10)), ElementsAre(0));
}

TEST(TokenSamplerTest, LogitsThatAreNotFiniteAreErrors) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    for (double temperature : {0.0, 1.0}) {
      TokenSampler sampler = Sampler(temperature, 0, 1, 3);
      const std::vector<float> logits = {0, bad, 0};
      const absl::Status status = sampler.Draw(logits.data(), RngStream(1, "t"), 0).status();
      EXPECT_THAT(std::string(status.message()), HasSubstr("the logit of token 1 is"));
    }
  }
}

TEST(TokenSamplerTest, OptionsAreChecked) {
  const auto error = [](double temperature, int top_k, double top_p, int32_t vocab_size) {
    SamplingOptions options;
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    return std::string(TokenSampler::Create(options, vocab_size).status().message());
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(error(-1, 0, 1, 5), HasSubstr("temperature must be"));
  EXPECT_THAT(error(kNan, 0, 1, 5), HasSubstr("temperature must be"));
  EXPECT_THAT(error(1, -1, 1, 5), HasSubstr("top_k must be >= 0"));
  EXPECT_THAT(error(1, 0, 0, 5), HasSubstr("top_p must be above 0"));
  EXPECT_THAT(error(1, 0, 1.1, 5), HasSubstr("top_p must be above 0"));
  EXPECT_THAT(error(1, 0, kNan, 5), HasSubstr("top_p must be above 0"));
  EXPECT_THAT(error(1, 0, 1, 0), HasSubstr("vocab_size"));
  EXPECT_EQ(error(1, 0, 1, 5), "");
}

}  // namespace
}  // namespace plumb
