// SPDX-License-Identifier: Apache-2.0
// Tokens that are decoded one by one give the same text as all at once, with every kind of
// tokenizer.
#include "runtime/tokenizer/token_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/bpe_trainer.h"

namespace plumb {
namespace {

// Returns a tokenizer with words with and without a space before them, spaces, an empty piece,
// bytes, a special token.
std::string WithDecoder(absl::string_view decoder) {
  std::string vocabulary =
      R"("▁": 0, "▁a": 1, "b": 2, "é▁": 3, "##c": 4, " ": 5, ".": 6, "n't": 7)";
  int id = 8;
  for (const char* const byte :
       {"20", "61", "C3", "A9", "E2", "96", "81", "F0", "9F", "98", "80"}) {
    absl::StrAppend(&vocabulary, R"(, "<0x)", byte, R"(>": )", id++);
  }
  return absl::StrCat(R"({"added_tokens": [{"id": )", id, R"(, "content": "<s>", "special": true},
      {"id": )",
                      id + 1, R"(, "content": "", "special": false}],
      "decoder": )",
                      decoder, R"(, "model": {"type": "BPE", "merges": [], "vocab": {)", vocabulary,
                      "}}}");
}

Tokenizer FromJson(const std::string& json) {
  absl::StatusOr<Tokenizer> made = Tokenizer::FromJson(json);
  EXPECT_TRUE(made.ok()) << made.status() << "\n" << json;
  return made.ok() ? *std::move(made) : Tokenizer::Bytes(false);
}

Tokenizer ByteLevelBpe() {
  BpeTrainer::Options options;
  options.vocab_size = 256 + 1 + 12;
  auto trainer = BpeTrainer::Create(options).value();
  const auto quiet = [](int64_t) { return absl::OkStatus(); };
  EXPECT_TRUE(trainer->Count("😀😁 😀é 中文, 😂 the then 😀<|endoftext|>", quiet).ok());
  return FromJson(trainer->Train(quiet).value());
}

std::string Llama(int start, int stop) {
  return absl::StrFormat(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": %d, "stop": %d}]})",
                         start, stop);
}

// Name, tokenizer, and whether text is returned before Finish.
struct DecoderCase {
  std::string name;
  Tokenizer tokenizer;
  bool streams = true;
};

std::vector<DecoderCase> Cases() {
  const auto characters = [](bool begin_end) {
    const absl::string_view texts[] = {"aé中😀 \n"};
    return Tokenizer::Characters(texts, begin_end).value();
  };
  const auto fused = [](absl::string_view step) {
    return absl::StrCat(R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
        {"type": "Fuse"}, )",
                        step, "]}");
  };
  return {
      {"characters", characters(false)},
      {"characters of documents", characters(true)},
      {"bytes", Tokenizer::Bytes(false)},
      {"bytes of documents", Tokenizer::Bytes(true)},
      {"byte-level BPE", ByteLevelBpe()},
      {"SentencePiece", FromJson(WithDecoder(R"({"type": "Metaspace"})"))},
      {"SentencePiece without a mark in front",
       FromJson(WithDecoder(R"({"type": "Metaspace", "prepend_scheme": "never"})"))},
      {"Llama", FromJson(WithDecoder(Llama(1, 0)))},
      {"Llama, three spaces", FromJson(WithDecoder(Llama(3, 0)))},
      {"WordPiece", FromJson(WithDecoder(R"({"type": "WordPiece", "cleanup": true})"))},
      {"spaces between pieces", FromJson(WithDecoder("null"))},
      {"each piece stripped",
       FromJson(WithDecoder(R"({"type": "Strip", "content": " ", "start": 1, "stop": 1})"))},
      {"Gemma", FromJson(WithDecoder(R"({"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
          {"type": "ByteFallback"}, {"type": "Fuse"}]})"))},
      {"stripped at the end", FromJson(WithDecoder(Llama(1, 1))), false},
      {"stripped of a character of three bytes",
       FromJson(WithDecoder(fused(R"({"type": "Strip", "content": "▁", "start": 1, "stop": 0})"))),
       false},
      {"replaced across pieces",
       FromJson(WithDecoder(
           fused(R"({"type": "Replace", "pattern": {"String": " ."}, "content": "!"})"))),
       false},
  };
}

// Returns the texts that a host receives for the tokens, passed in groups of random sizes.
std::vector<std::string> InPieces(TokenDecoder* decoder, absl::Span<const int32_t> tokens,
                                  std::mt19937* random) {
  std::vector<std::string> pieces(1);
  while (!tokens.empty()) {
    const size_t n = std::min<size_t>(tokens.size(), (*random)() % 3);
    EXPECT_TRUE(decoder->Append(tokens.subspan(0, n), &pieces.back()).ok());
    pieces.emplace_back();
    tokens.remove_prefix(n);
  }
  EXPECT_TRUE(decoder->Finish(&pieces.back()).ok());
  return pieces;
}

TEST(TokenDecoderTest, PiecesConcatenateToTheText) {
  std::mt19937 random(1);
  for (const DecoderCase& each : Cases()) {
    SCOPED_TRACE(each.name);
    TokenDecoder again = TokenDecoder::Create(&each.tokenizer).value();
    for (int round = 0; round < 2000; ++round) {
      std::vector<int32_t> tokens(random() % 12);
      for (int32_t& token : tokens) {
        token = static_cast<int32_t>(random() % static_cast<unsigned>(each.tokenizer.vocab_size()));
      }
      const std::string whole = each.tokenizer.Decode(tokens).value();
      const std::vector<std::string> pieces = InPieces(&again, tokens, &random);
      ASSERT_EQ(absl::StrJoin(pieces, ""), whole) << "a decoder that is used again";
      for (const std::string& piece : pieces) {
        if (FindInvalidUtf8(whole)) continue;
        ASSERT_FALSE(FindInvalidUtf8(piece)) << "a piece ends inside of a character";
      }
      const size_t split = random() % (tokens.size() + 1);
      const auto prompt = absl::MakeConstSpan(tokens).subspan(0, split);
      TokenDecoder after = TokenDecoder::Create(&each.tokenizer, prompt).value();
      const std::string rest =
          absl::StrJoin(InPieces(&after, absl::MakeConstSpan(tokens).subspan(split), &random), "");
      std::string known = each.tokenizer.Decode(prompt).value();
      known.resize(known.size() - IncompleteUtf8End(known));
      if (each.streams) {
        ASSERT_EQ(known + rest, whole) << split << " tokens are the prompt";
      } else {
        ASSERT_TRUE(absl::EndsWith(whole, rest)) << "the rules may change the prompt's end";
      }
    }
  }
}

TEST(TokenDecoderTest, ReturnsTextAsEarlyAsPossible) {
  for (const DecoderCase& each : Cases()) {
    SCOPED_TRACE(each.name);
    const absl::StatusOr<std::vector<int32_t>> tokens = each.tokenizer.Encode("aé");
    TokenDecoder decoder = TokenDecoder::Create(&each.tokenizer).value();
    std::string text;
    for (const int32_t token : tokens.ok() ? *tokens : std::vector<int32_t>{1, 2}) {
      ASSERT_TRUE(decoder.Append(absl::MakeConstSpan(&token, 1), &text).ok());
    }
    EXPECT_EQ(!text.empty(), each.streams);
  }
}

// Hosts had this error when they decoded each token alone.
TEST(TokenDecoderTest, KeepsSpacesAndSplitCharacters) {
  const auto decode = [](const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
    TokenDecoder decoder = TokenDecoder::Create(&tokenizer).value();
    std::vector<std::string> pieces;
    for (const int32_t token : tokens) {
      pieces.emplace_back();
      EXPECT_TRUE(decoder.Append(absl::MakeConstSpan(&token, 1), &pieces.back()).ok());
    }
    pieces.emplace_back();
    EXPECT_TRUE(decoder.Finish(&pieces.back()).ok());
    return pieces;
  };
  using Pieces = std::vector<std::string>;
  const Tokenizer marks = FromJson(WithDecoder(Llama(1, 0)));
  EXPECT_EQ(decode(marks, {1, 1, 2}), (Pieces{"a", " a", "b", ""}));
  EXPECT_EQ(decode(marks, {0, 0, 1, 2}), (Pieces{"", " ", " a", "b", ""}));
  const int32_t smile = 15;  // <0xF0>, the first of four bytes
  EXPECT_EQ(decode(marks, {smile, smile + 1, smile + 2, smile + 3, 2}),
            (Pieces{"", "", "", "😀", "b", ""}));
  EXPECT_EQ(decode(marks, {smile, smile + 1}), (Pieces{"", "", "\xf0\x9f"}));
  EXPECT_EQ(decode(marks, {smile, 2}), (Pieces{"",
                                               "\xf0"
                                               "b",
                                               ""}));
  const Tokenizer words = FromJson(WithDecoder(R"({"type": "WordPiece"})"));
  EXPECT_EQ(decode(words, {2, 4, 2, 6}), (Pieces{"b", "c", " b", ".", ""}));
}

TEST(TokenDecoderTest, UnknownIdChangesNothing) {
  const Tokenizer bytes = Tokenizer::Bytes(false);
  EXPECT_FALSE(TokenDecoder::Create(&bytes, {256}).ok());
  TokenDecoder decoder = TokenDecoder::Create(&bytes).value();
  std::string text;
  EXPECT_TRUE(decoder.Append({0xC3}, &text).ok());
  EXPECT_FALSE(decoder.Append({0x41, 256}, &text).ok());
  EXPECT_FALSE(decoder.Append({-1}, &text).ok());
  EXPECT_TRUE(decoder.Append({0xA9}, &text).ok());
  EXPECT_EQ(text, "é");
}

}  // namespace
}  // namespace plumb
