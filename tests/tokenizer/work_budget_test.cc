// SPDX-License-Identifier: Apache-2.0
// Files that make a tokenizer run for hours, fill the memory or overflow the stack cause errors.
#include "runtime/tokenizer/work_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

constexpr char kLetters[] = R"({"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2}, "merges": []})";

std::string TokenizerJson(absl::string_view model, absl::string_view fields) {
  return absl::StrCat("{\"model\": ", model, fields.empty() ? "" : ", ", fields, "}");
}

// Expects the error that reports too much work of `part`.
void ExpectLimit(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(), HasSubstr("more than the limit of"));
  EXPECT_THAT(status.message(), HasSubstr(part));
}

absl::Status Encode(const std::string& json, const std::string& text) {
  const auto tokenizer = Tokenizer::FromJson(json);
  if (!tokenizer.ok()) return tokenizer.status();
  return tokenizer->Encode(text).status();
}

std::string Repeated(absl::string_view element, int times) {
  std::string list;
  for (int i = 0; i < times; ++i) absl::StrAppend(&list, i == 0 ? "" : ",", element);
  return list;
}

std::string Splits(int count) {
  return absl::StrCat(
      R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [)",
      Repeated(R"({"type": "Split", "pattern": {"Regex": " "}, "behavior": "Isolated"})", count),
      "]}");
}

TEST(WorkBudgetTest, TooManyStepsAreAnError) {
  ExpectLimit(Encode(TokenizerJson(kLetters, Splits(20000)), "a b"), "pre_tokenizer");
  const std::string strip = R"({"type": "Strip"})";
  ExpectLimit(
      Encode(TokenizerJson(kLetters,
                           absl::StrCat(R"("normalizer": {"type": "Sequence", "normalizers": [)",
                                        Repeated(strip, 1000), "]}")),
             "a"),
      "normalizer");
}

struct ThreadResult {
  std::string json;
  absl::Status status;
};

void* EncodeInThread(void* argument) {
  auto* result = static_cast<ThreadResult*>(argument);
  result->status = Encode(result->json, "a b a");
  return nullptr;
}

TEST(WorkBudgetTest, MaxStepsFitIntoASmallStack) {
  ThreadResult result{TokenizerJson(kLetters, Splits(static_cast<int>(WorkBudget::kMaxParts))),
                      absl::UnknownError("")};
  pthread_attr_t attributes;
  pthread_t thread;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{256} << 10), 0);
  ASSERT_EQ(pthread_create(&thread, &attributes, EncodeInThread, &result), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
  EXPECT_TRUE(result.status.ok()) << result.status;
}

TEST(WorkBudgetTest, ReplacementsThatDoubleATextAreAnError) {
  const std::string twice = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const std::string json =
      TokenizerJson(kLetters, absl::StrCat(R"("normalizer": {"type": "Sequence", "normalizers": [)",
                                           Repeated(twice, 60), "]}"));
  ExpectLimit(Encode(json, "a"), "Replace");
}

TEST(WorkBudgetTest, ALongReplacementIsAnError) {
  const std::string json = TokenizerJson(
      kLetters,
      absl::StrCat(R"("normalizer": {"type": "Replace", "pattern": {"Regex": "a"}, "content": ")",
                   std::string(1 << 20, 'b'), "\"}"));
  ExpectLimit(Encode(json, std::string(100000, 'a')), "Replace");
}

TEST(WorkBudgetTest, DecodersAreBoundedToo) {
  const std::string twice = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const auto tokenizer = Tokenizer::FromJson(TokenizerJson(
      kLetters,
      absl::StrCat(R"("decoder": {"type": "Sequence", "decoders": [)", Repeated(twice, 60), "]}")));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ExpectLimit(tokenizer->Decode({0}).status(), "Replace");
}

TEST(WorkBudgetTest, LongAddedTokensAreBounded) {
  const std::string json = TokenizerJson(
      kLetters, absl::StrCat(R"("added_tokens": [{"id": 3, "content": ")",
                             std::string(1 << 14, 'a'), R"(b", "normalized": false}])"));
  ExpectLimit(Encode(json, std::string(1 << 14, 'a')), "added tokens");
  EXPECT_TRUE(Encode(json, "aab").ok());
}

TEST(WorkBudgetTest, LongPiecesAreBounded) {
  std::string vocab = R"(["<unk>", 0.0], ["a", -1.0])";
  absl::StrAppend(&vocab, ", [\"", std::string(1 << 14, 'a'), "b\", -1.0]");
  const std::string json = TokenizerJson(
      absl::StrCat(R"({"type": "Unigram", "unk_id": 0, "vocab": [)", vocab, "]}"), "");
  ExpectLimit(Encode(json, std::string(1 << 14, 'a')), "vocabulary");
}

TEST(WorkBudgetTest, PatternsAreBoundedInAll) {
  // At each letter the first alternative tries all ways to split the rest.
  const std::string json = TokenizerJson(
      kLetters,
      R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?:a+)+b|a"}, "behavior": "Isolated"})");
  ExpectLimit(Encode(json, std::string(5000, 'a')), "pattern");
}

TEST(WorkBudgetTest, LongRunsAreWithinTheBudget) {
  const std::string json = TokenizerJson(
      kLetters,
      R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|[^\\s]+"}, "behavior": "Isolated"})");
  EXPECT_TRUE(Encode(json, std::string(1 << 20, ' ') + "a").ok());
  EXPECT_TRUE(Encode(json, std::string(1 << 20, 'a')).ok());
}

}  // namespace
}  // namespace plumb
