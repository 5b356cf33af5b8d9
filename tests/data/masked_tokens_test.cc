// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace plumb {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;

constexpr int32_t kVocabulary = 50, kMask = 49;

// Returns rows of `lengths` tokens, which repeat 0 to 47, and padding.
Batch Rows(const std::vector<int64_t>& lengths, int64_t seq) {
  Batch batch;
  batch.batch = static_cast<int64_t>(lengths.size());
  batch.seq = seq;
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < seq; ++t) {
      batch.tokens.push_back(t < length ? static_cast<int32_t>(t % 48) : -1);
    }
  }
  batch.targets.assign(batch.tokens.size(), 7);
  return batch;
}

TokenMasking Masking() {
  TokenMasking masking;
  masking.seed = 5;
  masking.mask_token = kMask;
  masking.vocab_size = kVocabulary;
  return masking;
}

std::vector<int32_t> Row(const std::vector<int32_t>& values, const Batch& batch, int64_t row) {
  return {values.begin() + row * batch.seq, values.begin() + (row + 1) * batch.seq};
}

TEST(MaskedTokensTest, ChoosesTheShareOfEachRow) {
  const std::vector<int64_t> lengths = {100, 1, 3, 10, 0, 37};
  const Batch before = Rows(lengths, 100);
  Batch batch = before;
  MaskTokens(Masking(), kTrainingMasks, 0, &batch);
  int64_t all = 0;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto tokens = Row(batch.tokens, batch, static_cast<int64_t>(row));
    const auto targets = Row(batch.targets, batch, static_cast<int64_t>(row));
    const auto original = Row(before.tokens, batch, static_cast<int64_t>(row));
    int64_t chosen = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      if (targets[t] < 0) {
        EXPECT_EQ(targets[t], -1);
        EXPECT_EQ(tokens[t], original[t]) << "row " << row << " token " << t;
        continue;
      }
      ++chosen;
      EXPECT_EQ(targets[t], original[t]) << "row " << row << " token " << t;
    }
    const int64_t wanted = std::llround(0.15 * static_cast<double>(lengths[row]));
    EXPECT_EQ(chosen, std::min(lengths[row], std::max<int64_t>(1, wanted))) << "row " << row;
    all += chosen;
  }
  EXPECT_EQ(batch.valid_targets, all);
}

TEST(MaskedTokensTest, SpecialTokensAreNeverChosen) {
  TokenMasking masking = Masking();
  masking.share = 1;
  masking.special_tokens = {0, 3};
  Batch batch = Rows({8}, 8);
  MaskTokens(masking, kTrainingMasks, 0, &batch);
  EXPECT_THAT(batch.targets, ElementsAreArray({-1, 1, 2, -1, 4, 5, 6, 7}));
  masking.special_tokens = {0, 1, 2, 3, 4, 5, 6, 7};
  batch = Rows({8}, 8);
  MaskTokens(masking, kTrainingMasks, 0, &batch);
  EXPECT_THAT(batch.targets, Each(-1));
  EXPECT_EQ(batch.valid_targets, 0);
}

// All 20000 tokens are chosen. The standard deviations are 57 and 42.
TEST(MaskedTokensTest, EightOfTenAreMaskedAndOneIsRandom) {
  TokenMasking masking = Masking();
  masking.share = 1;
  Batch batch = Rows(std::vector<int64_t>(20, 1000), 1000);
  const Batch before = batch;
  MaskTokens(masking, kTrainingMasks, 0, &batch);
  int masked = 0, kept = 0;
  std::vector<int> drawn(kVocabulary, 0);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    ASSERT_EQ(batch.targets[i], before.tokens[i]);
    masked += batch.tokens[i] == kMask;
    kept += batch.tokens[i] == before.tokens[i];
    if (batch.tokens[i] != kMask && batch.tokens[i] != before.tokens[i]) {
      ++drawn[static_cast<size_t>(batch.tokens[i])];
    }
  }
  EXPECT_NEAR(masked, 16000 + 40, 250);  // plus the random tokens that equal the mask
  EXPECT_NEAR(kept, 2000 + 40, 200);
  for (int32_t token = 0; token + 1 < kVocabulary; ++token) {
    EXPECT_NEAR(drawn[static_cast<size_t>(token)], 40, 30) << token;
  }
}

// All sets of two of five tokens are equally likely: 1000 of 10000 rows, with a standard deviation
// of 30.
TEST(MaskedTokensTest, SetsOfTokensAreEquallyLikely) {
  TokenMasking masking = Masking();
  masking.share = 0.4;
  Batch batch = Rows(std::vector<int64_t>(10000, 5), 5);
  MaskTokens(masking, kTrainingMasks, 0, &batch);
  std::map<std::vector<bool>, int> sets;
  for (int64_t row = 0; row < batch.batch; ++row) {
    std::vector<bool> set;
    for (const int32_t target : Row(batch.targets, batch, row)) set.push_back(target >= 0);
    ++sets[set];
  }
  EXPECT_EQ(sets.size(), 10u);
  for (const auto& [set, count] : sets) EXPECT_NEAR(count, 1000, 150);
}

TEST(MaskedTokensTest, ChoiceDependsOnTheSequenceOnly) {
  Batch together = Rows({40, 40, 40}, 40), alone = Rows({40}, 50);
  MaskTokens(Masking(), kTrainingMasks, 10, &together);
  MaskTokens(Masking(), kTrainingMasks, 11, &alone);
  alone.tokens.resize(40);
  alone.targets.resize(40);
  EXPECT_EQ(Row(together.tokens, together, 1), alone.tokens);
  EXPECT_EQ(Row(together.targets, together, 1), alone.targets);
  EXPECT_NE(Row(together.targets, together, 0), Row(together.targets, together, 1));
  Batch other = Rows({40, 40, 40}, 40);
  MaskTokens(Masking(), kEvaluationMasks, 10, &other);
  EXPECT_NE(other.targets, together.targets);
  TokenMasking seed = Masking();
  seed.seed = 6;
  other = Rows({40, 40, 40}, 40);
  MaskTokens(seed, kTrainingMasks, 10, &other);
  EXPECT_NE(other.targets, together.targets);
}

}  // namespace
}  // namespace plumb
