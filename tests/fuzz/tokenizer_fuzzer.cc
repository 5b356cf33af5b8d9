// SPDX-License-Identifier: Apache-2.0
// Fuzzes tokenizers from files and from texts: encoded texts decode to themselves.
#include "runtime/base/check.h"
#include "runtime/tokenizer/token_decoder.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

// Checks subword tokenizers, whose files may contain any decoding rule.
void CheckTokens(const Tokenizer& tokenizer, absl::string_view text) {
  const auto tokens = tokenizer.Encode(text);
  if (!tokens.ok()) return;
  for (const int32_t token : *tokens) {
    PLUMB_CHECK(token >= 0 && token < tokenizer.vocab_size(), "a token outside the vocabulary");
    PLUMB_CHECK(!tokenizer.TokenText(token).empty(), "a token without a text");
  }
  const auto decoded = tokenizer.Decode(*tokens);
  if (!decoded.ok()) return;
  auto decoder = TokenDecoder::Create(&tokenizer);
  PLUMB_CHECK(decoder.ok(), "no decoder");
  std::string pieces;
  for (const int32_t token : *tokens) {
    if (!decoder->Append(absl::MakeConstSpan(&token, 1), &pieces).ok()) return;
  }
  if (!decoder->Finish(&pieces).ok()) return;
  PLUMB_CHECK(pieces == *decoded, "tokens one by one have another text");
}

void CheckRoundTrip(const Tokenizer& tokenizer, absl::string_view text) {
  CheckTokens(tokenizer, text);
  const auto tokens = tokenizer.Encode(text);
  if (!tokens.ok()) return;
  const auto decoded = tokenizer.Decode(*tokens);
  PLUMB_CHECK(decoded.ok() && *decoded == text, "a text comes back otherwise");
}

PLUMB_FUZZER(tokenizer) {
  const absl::string_view text = AsText(data, size);
  if (const auto read = Tokenizer::FromJson(text); read.ok()) {
    const auto again = Tokenizer::FromJson(read->ToJson());
    PLUMB_CHECK(again.ok() && *again == *read, "a tokenizer does not read itself");
    for (const absl::string_view encoded : {text, absl::string_view("abc\n")}) {
      if (read->subwords() != nullptr) {
        CheckTokens(*read, encoded);
      } else {
        CheckRoundTrip(*read, encoded);
      }
    }
  }
  const absl::string_view texts[] = {text.substr(0, text.size() / 2), text.substr(text.size() / 2)};
  for (const bool with_begin_end : {false, true}) {
    CheckRoundTrip(Tokenizer::Bytes(with_begin_end), text);
    const auto made = Tokenizer::Characters(texts, with_begin_end);
    if (!made.ok()) continue;
    for (const absl::string_view part : texts) {
      PLUMB_CHECK(made->Encode(part).ok(), "a vocabulary lacks its own text");
      CheckRoundTrip(*made, part);
    }
    const auto again = Tokenizer::FromJson(made->ToJson());
    PLUMB_CHECK(again.ok() && *again == *made, "a tokenizer does not read itself");
  }
}

}  // namespace
}  // namespace plumb
