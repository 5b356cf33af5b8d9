// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/subword_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/tokenizer/bpe_trainer.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tokenizer like SentencePiece's: marks for spaces, and one before the text.
constexpr char kMarks[] = R"({
  "normalizer": {"type": "Prepend", "prepend": "▁"},
  "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
    "special_tokens": {"<s>": {"ids": [4]}}},
  "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
  "added_tokens": [{"id": 4, "content": "<s>", "special": true},
                   {"id": 5, "content": "</s>", "special": true}],
  "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "▁a": 2, "b": 3}, "merges": ["▁ a"]}})";

TEST(SubwordTokenizerTest, EncodesAndDecodesSpaces) {
  const auto tokenizer = Tokenizer::FromJson(kMarks);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto tokens = tokenizer->Encode("a ab");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre(2, 2, 3));
  EXPECT_EQ(*tokenizer->Decode(*tokens), "a ab");
  EXPECT_EQ(*tokenizer->Decode({4, 2, 5}), "a");  // special tokens have no text
  EXPECT_THAT(tokenizer->prompt_prefix(), ElementsAre(4));
  EXPECT_EQ(tokenizer->end_token(), 5);
  EXPECT_EQ(tokenizer->vocab_size(), 6);
  EXPECT_EQ(tokenizer->Description(), "BPE of 6 tokens");
  EXPECT_EQ(tokenizer->ToJson(), kMarks);
  EXPECT_FALSE(tokenizer->Decode({6}).ok());
}

TEST(SubwordTokenizerTest, ContinuedTextHasNoSpaceMark) {
  const auto append = [](const Tokenizer& tokenizer, std::vector<int32_t> tokens,
                         absl::string_view text) {
    size_t bad_byte = 0;
    EXPECT_TRUE(TokenEncoder(&tokenizer).Append(text, &tokens, &bad_byte, /*continues=*/true).ok());
    return tokens;
  };
  const auto marks = Tokenizer::FromJson(kMarks);
  ASSERT_TRUE(marks.ok()) << marks.status();
  EXPECT_EQ(append(*marks, *marks->Encode("a"), " ab"), *marks->Encode("a ab"));
  EXPECT_EQ(append(*marks, *marks->Encode("a"), "b"), *marks->Encode("ab"));
  // The text after a special token begins a segment.
  EXPECT_EQ(append(*marks, *marks->Encode("a</s>"), "a"), *marks->Encode("a</s>a"));

  std::string json = R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"\u0120": 0, "a": 1, "b": 2, "\u0120a": 3},
              "merges": ["\u0120 a"]}})";
  const auto bytes = Tokenizer::FromJson(json);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT(*bytes->Encode("a"), ElementsAre(3));
  EXPECT_THAT(append(*bytes, *bytes->Encode("a"), "a"), ElementsAre(3, 1));
  EXPECT_THAT(append(*bytes, *bytes->Encode("a"), " a"), ElementsAre(3, 3));
}

TEST(SubwordTokenizerTest, UnknownTextIsAnErrorWithItsPlace) {
  const auto tokenizer = Tokenizer::FromJson(kMarks);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT(tokenizer->Encode("a x").status().message(), HasSubstr("'x' (U+0078) has no token"));
  std::vector<int32_t> tokens;
  size_t bad_byte = 0;
  EXPECT_FALSE(tokenizer->AppendTokens("a <s>a\xff", &tokens, &bad_byte).ok());
  EXPECT_EQ(bad_byte, 6u);
}

TEST(BpeTrainerTest, TiesGoToLowerIds) {
  BpeTrainer::Options options;
  options.vocab_size = 256 + 1 + 2;
  const auto trainer = BpeTrainer::Create(options);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const auto quiet = [](int64_t) { return absl::OkStatus(); };
  ASSERT_TRUE((*trainer)->Count("cd,cd,ab,ab<|endoftext|>zz<|endoftext|>", quiet).ok());
  const auto json = (*trainer)->Train(quiet);
  ASSERT_TRUE(json.ok());
  const auto tokenizer = Tokenizer::FromJson(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->TokenText(256), "ab");
  EXPECT_EQ(tokenizer->TokenText(257), "cd");
  EXPECT_EQ(tokenizer->end_token(), 258);
}

TEST(BpeTrainerTest, InvalidSizesAreErrors) {
  BpeTrainer::Options options;
  options.vocab_size = 256;
  EXPECT_THAT(BpeTrainer::Create(options).status().message(), HasSubstr("from 257"));
  options.vocab_size = 300;
  options.pattern = "(";
  EXPECT_THAT(BpeTrainer::Create(options).status().message(), HasSubstr("pattern"));
}

}  // namespace
}  // namespace plumb
