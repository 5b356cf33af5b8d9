// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/attention_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "runtime/base/bf16.h"

namespace plumb {
namespace {

// Softmax in double, as its definition has it: the weights of all keys, then their entropy.
struct NaiveFigures {
  std::vector<double> entropy, max_logit, lse;

  NaiveFigures(const AttentionShape& shape, const std::vector<float>& q,
               const std::vector<float>& k, const float* sinks, const int32_t* lengths) {
    const auto element = [](const std::vector<float>& x, int64_t i) {
      return static_cast<double>(x[static_cast<size_t>(i)]);
    };
    for (int64_t row = 0; row < shape.batch; ++row) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        for (int64_t i = 0; i < shape.tokens; ++i) {
          std::vector<double> logits;
          for (int64_t j = 0; j < shape.tokens; ++j) {
            const bool in_window = shape.window == 0 || i - j < shape.window;
            if (lengths != nullptr ? j >= lengths[row] : j > i || !in_window) continue;
            double dot = 0;
            for (int64_t e = 0; e < shape.head_dim; ++e) {
              dot +=
                  element(q, ((row * shape.tokens + i) * shape.heads + head) * shape.head_dim + e) *
                  element(k, ((row * shape.tokens + j) * shape.kv_heads +
                              head / (shape.heads / shape.kv_heads)) *
                                     shape.head_dim +
                                 e);
            }
            logits.push_back(shape.Capped(shape.scale * dot) + shape.DistanceBias(head, i, j));
          }
          if (sinks != nullptr) logits.push_back(static_cast<double>(sinks[head]));
          double total = 0, top = 0, sum = 0;
          for (const double logit : logits) {
            total += std::exp(logit);
            top = std::max(top, std::abs(logit));
          }
          for (const double logit : logits) {
            const double p = std::exp(logit) / total;
            sum -= p * std::log(p);
          }
          entropy.push_back(sum);
          max_logit.push_back(top);
          lse.push_back(std::log(total));
        }
      }
    }
  }
};

void ExpectFigures(AttentionShape shape, bool has_sinks, bool has_lengths, bool is_bf16) {
  shape.queries = shape.tokens;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto draw = [&](int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& e : x) {
      e = normal(random);
      if (is_bf16) e = FloatFromBf16(Bf16FromFloat(e));
    }
    return x;
  };
  const auto narrow = [](const std::vector<float>& x) {
    std::vector<uint16_t> out;
    for (const float e : x) out.push_back(Bf16FromFloat(e));
    return out;
  };
  const std::vector<float> q = draw(shape.batch * shape.tokens * shape.q_stride());
  const std::vector<float> k = draw(shape.batch * shape.tokens * shape.kv_stride());
  const std::vector<float> sinks = draw(shape.heads);
  const std::vector<uint16_t> narrow_q = narrow(q), narrow_k = narrow(k);
  const std::vector<int32_t> lengths = {2, static_cast<int32_t>(shape.tokens)};
  AttentionOperands operands;
  operands.is_bf16 = is_bf16;
  operands.q = is_bf16 ? static_cast<const void*>(narrow_q.data()) : q.data();
  operands.k = is_bf16 ? static_cast<const void*>(narrow_k.data()) : k.data();
  if (has_sinks) operands.sinks = sinks.data();
  if (has_lengths) operands.lengths = lengths.data();
  const NaiveFigures want(shape, q, k, operands.sinks, operands.lengths);
  const std::vector<float> lse(want.lse.begin(), want.lse.end());
  operands.lse = lse.data();
  std::vector<float> entropy(lse.size()), max_logit(lse.size());
  ComputeAttentionFigures(shape, operands, 2, entropy.data(), max_logit.data());
  for (size_t i = 0; i < lse.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(entropy[i]), want.entropy[i], 2e-5) << i;
    EXPECT_NEAR(static_cast<double>(max_logit[i]), want.max_logit[i], 2e-5) << i;
  }
}

// Two sequences of nine tokens, four heads that share two heads of keys, eleven wide.
constexpr AttentionShape kShape = {2, 9, 9, 4, 2, 11, 0.4, 0, 0, 0};

TEST(AttentionFiguresTest, MatchASoftmax) {
  ExpectFigures(kShape, false, false, false);
  ExpectFigures(kShape, false, false, true);
}

TEST(AttentionFiguresTest, CoverEveryVariant) {
  AttentionShape capped = kShape, windowed = kShape, sloped = kShape;
  capped.cap = 0.7;
  windowed.window = 3;
  sloped.alibi = 1;
  for (const AttentionShape& shape : {capped, windowed, sloped}) {
    ExpectFigures(shape, false, false, false);
  }
  ExpectFigures(kShape, true, false, false);
  ExpectFigures(kShape, false, true, false);
}

TEST(AttentionFiguresTest, EqualKeysHaveTheEntropyOfTheirNumber) {
  AttentionShape shape = kShape;
  shape.batch = 1;
  const std::vector<float> zeros(static_cast<size_t>(shape.tokens * shape.q_stride()), 0.0F);
  std::vector<float> lse, entropy(36), max_logit(36, 1.0F);
  for (int head = 0; head < 4; ++head) {
    for (int i = 0; i < 9; ++i) lse.push_back(std::log(static_cast<float>(i + 1)));
  }
  AttentionOperands operands;
  operands.q = operands.k = zeros.data();
  operands.lse = lse.data();
  ComputeAttentionFigures(shape, operands, 1, entropy.data(), max_logit.data());
  for (size_t i = 0; i < 36; ++i) {
    EXPECT_NEAR(static_cast<double>(entropy[i]), std::log(static_cast<double>(i % 9 + 1)), 1e-6);
    EXPECT_EQ(max_logit[i], 0);
  }
}

}  // namespace
}  // namespace plumb
