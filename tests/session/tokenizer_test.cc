// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer MakeCharacters(absl::string_view text, bool begin_end) {
  return *Tokenizer::Characters({text}, begin_end);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(TokenizerTest, CharactersAreSorted) {
  const Tokenizer tokenizer = MakeCharacters("qwertyuiopasdfghjklzxcvbnm", true);
  EXPECT_EQ(tokenizer.vocab_size(), 27);
  EXPECT_EQ(tokenizer.end_token(), absl::optional<int32_t>(26));
  EXPECT_THAT(*tokenizer.Encode("abz"), ElementsAre(0, 1, 25));
  EXPECT_EQ(MakeCharacters("ab", false).vocab_size(), 2);
  EXPECT_EQ(MakeCharacters("ab", false).end_token(), absl::nullopt);
}

TEST(TokenizerTest, CharactersAreCodePoints) {
  const Tokenizer tokenizer = MakeCharacters("z\u00e9\u4e2d\U0001F600a", false);
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  const std::vector<int32_t> tokens = *tokenizer.Encode("a\u00e9\U0001F600");
  EXPECT_THAT(tokens, ElementsAre(0, 2, 4));
  EXPECT_EQ(*tokenizer.Decode(tokens), "a\u00e9\U0001F600");
}

TEST(TokenizerTest, VocabularyIsTheUnionOfTheTexts) {
  const Tokenizer tokenizer = *Tokenizer::Characters({"ab", "", "bc"}, false);
  EXPECT_EQ(tokenizer, MakeCharacters("abc", false));
  EXPECT_NE(tokenizer, MakeCharacters("abc", true));
}

TEST(TokenizerTest, UnknownCharactersAreQuotedWithTheVocabulary) {
  const Tokenizer tokenizer = MakeCharacters("abc", true);
  EXPECT_EQ(Message(tokenizer.Encode("ab\u00e9c").status()),
            "character 3: '\u00e9' (U+00E9) is not in the vocabulary: 3 characters \"abc\", and a "
            "begin/end token");
  EXPECT_THAT(Message(tokenizer.Encode("\n").status()), HasSubstr("character 1: '\\n' (U+000A)"));
  EXPECT_THAT(Message(tokenizer.Encode("a\xff").status()),
              HasSubstr("character 2: byte 0xff is not valid UTF-8"));
  EXPECT_THAT(Message(tokenizer.Encode("\U0010FFFF").status()), HasSubstr("U+10FFFF"));
}

TEST(TokenizerTest, RefusesEmptyOrInvalidTexts) {
  EXPECT_FALSE(Tokenizer::Characters({}, true).ok());
  EXPECT_FALSE(Tokenizer::Characters({""}, true).ok());
  EXPECT_THAT(Message(Tokenizer::Characters({"ok\nno\xc3"}, false).status()),
              HasSubstr("line 2, byte 5 (0xc3)"));
}

TEST(TokenizerTest, BytesAcceptAnyText) {
  const Tokenizer tokenizer = Tokenizer::Bytes(true);
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  const std::vector<int32_t> tokens = *tokenizer.Encode(all);
  EXPECT_EQ(tokens[255], 255);
  EXPECT_EQ(*tokenizer.Decode(tokens), all);
  EXPECT_EQ(*tokenizer.Decode({256, 'a', 256}), "a");
  EXPECT_EQ(*tokenizer.Decode({0xff}), "\xff");
}

TEST(TokenizerTest, InvalidIdsAreErrors) {
  const Tokenizer tokenizer = MakeCharacters("abc", true);
  EXPECT_EQ(Message(tokenizer.Decode({0, 4}).status()),
            "token 4 at position 1 is outside the vocabulary of 4 tokens");
  EXPECT_FALSE(tokenizer.Decode({-1}).ok());
  EXPECT_EQ(tokenizer.TokenText(-1), "<invalid>");
  EXPECT_EQ(tokenizer.TokenText(4), "<invalid>");
}

TEST(TokenizerTest, PrintsTokens) {
  const Tokenizer tokenizer = MakeCharacters("\na", true);
  EXPECT_EQ(tokenizer.TokenText(0), "\\n");
  EXPECT_EQ(tokenizer.TokenText(1), "a");
  EXPECT_EQ(tokenizer.TokenText(2), "<begin/end>");
  EXPECT_EQ(Tokenizer::Bytes(false).TokenText(0xC3), "\\xc3");
  EXPECT_EQ(Tokenizer::Bytes(false).TokenText('A'), "A");
}

TEST(TokenizerTest, JsonFormatIsStable) {
  EXPECT_EQ(MakeCharacters("\"b\u00e9", true).ToJson(),
            "{\"format\":\"plumb-tokenizer\",\"version\":1,\"kind\":\"characters\","
            "\"characters\":[\"\\\"\",\"b\",\"\u00e9\"],\"begin_end_token\":3,\"vocab_size\":4}\n");
  EXPECT_EQ(Tokenizer::Bytes(false).ToJson(),
            "{\"format\":\"plumb-tokenizer\",\"version\":1,\"kind\":\"bytes\","
            "\"begin_end_token\":null,\"vocab_size\":256}\n");
}

TEST(TokenizerTest, JsonRoundTrips) {
  std::string controls = "\u00e9\U0001F600 \"\\\n";
  controls.push_back('\0');
  for (const Tokenizer& tokenizer : {MakeCharacters(controls, true), MakeCharacters("x", false),
                                     Tokenizer::Bytes(true), Tokenizer::Bytes(false)}) {
    const absl::StatusOr<Tokenizer> read = Tokenizer::FromJson(tokenizer.ToJson());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, tokenizer);
    EXPECT_EQ(read->vocab_size(), tokenizer.vocab_size());
  }
}

TEST(TokenizerTest, FromJsonChecksEveryField) {
  const std::string good = MakeCharacters("ab", true).ToJson();
  const auto error = [&](absl::string_view from, absl::string_view to) {
    const std::string json = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(json, good) << from;
    const absl::Status status = Tokenizer::FromJson(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return Message(status);
  };
  EXPECT_THAT(error("plumb-tokenizer", "bpe"), HasSubstr("\"format\""));
  EXPECT_THAT(error("\"version\":1", "\"version\":2"),
              HasSubstr("\"version\" is 2; this plumb reads"));
  EXPECT_THAT(error("\"version\":1,", ""), HasSubstr("\"version\" is missing"));
  EXPECT_THAT(error("\"kind\":\"characters\"", "\"kind\":\"words\""), HasSubstr("\"kind\""));
  EXPECT_THAT(error("\"kind\":\"characters\"", "\"kind\":\"bytes\""),
              HasSubstr("has no \"characters\""));
  EXPECT_THAT(error("[\"a\",\"b\"]", "[]"), HasSubstr("not empty"));
  EXPECT_THAT(error("[\"a\",\"b\"]", "7"), HasSubstr("list"));
  EXPECT_THAT(error("[\"a\",\"b\"]", "[\"a\",1]"), HasSubstr("characters[1] is not a string"));
  EXPECT_THAT(error("[\"a\",\"b\"]", "[\"a\",\"bc\"]"), HasSubstr("characters[1] is \"bc\""));
  EXPECT_THAT(error("[\"a\",\"b\"]", "[\"a\",\"\"]"), HasSubstr("characters[1] is \"\""));
  EXPECT_THAT(error("[\"a\",\"b\"]", "[\"b\",\"a\"]"), HasSubstr("U+0061 after U+0062"));
  EXPECT_THAT(error("[\"a\",\"b\"]", "[\"a\",\"a\"]"), HasSubstr("once each"));
  EXPECT_THAT(error("\"begin_end_token\":2", "\"begin_end_token\":0"), HasSubstr("the last id, 2"));
  EXPECT_THAT(error("\"begin_end_token\":2", "\"begin_end_token\":true"), HasSubstr("last id"));
  EXPECT_THAT(error("\"begin_end_token\":2,", ""), HasSubstr("\"begin_end_token\" is missing"));
  EXPECT_THAT(error("\"vocab_size\":3", "\"vocab_size\":4"), HasSubstr("\"vocab_size\" is 4"));
  EXPECT_THAT(error(",\"vocab_size\":3", ""), HasSubstr("\"vocab_size\" is missing"));
  EXPECT_THAT(error("\"vocab_size\":3", "\"vocab_size\":3,\"caracters\":1"),
              HasSubstr("unknown field \"caracters\"; did you mean \"characters\"?"));
  EXPECT_THAT(error("\"vocab_size\":3", "\"vocab_size\":3,\"vocab_size\":3"), HasSubstr("twice"));
  EXPECT_THAT(error("}\n", ""), HasSubstr("not valid JSON"));
  EXPECT_FALSE(Tokenizer::FromJson("").ok());
  EXPECT_FALSE(Tokenizer::FromJson("[]").ok());
  EXPECT_FALSE(Tokenizer::FromJson("null").ok());
}

}  // namespace
}  // namespace plumb
