// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

// Names of end tokens in published vocabularies, the most common first.
constexpr absl::string_view kEndNames[] = {
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
    "<|END_OF_TURN_TOKEN|>",
    "[SEP]",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<|return|>",
};

// Returns the special tokens of a vocabulary whose names usually end a text ("</s>", "<|im_end|>"),
// the most common name first.
std::vector<int32_t> GuessEndTokens(const SubwordTokenizer& tokenizer) {
  std::vector<std::pair<std::ptrdiff_t, int32_t>> ranked;
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    if (!tokenizer.is_special(token)) continue;
    const auto* const at =
        std::find(std::begin(kEndNames), std::end(kEndNames), tokenizer.piece(token));
    if (at != std::end(kEndNames)) ranked.emplace_back(at - std::begin(kEndNames), token);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<int32_t> tokens;
  for (const auto& [rank, token] : ranked) tokens.push_back(token);
  return tokens;
}

}  // namespace

bool SpecialTokens::Ends(int32_t token) const {
  return std::find(end.begin(), end.end(), token) != end.end();
}

Tokenizer::Tokenizer(Kind kind, std::vector<uint32_t> characters, bool has_begin_end)
    : kind_(kind), has_begin_end_(has_begin_end), characters_(std::move(characters)) {
  if (has_begin_end_) {
    special_.begin = num_symbols();
    special_.end = {num_symbols()};
  }
  if (characters_.empty()) return;
  token_of_.assign(characters_.back() + 1, -1);
  for (size_t i = 0; i < characters_.size(); ++i) {
    token_of_[characters_[i]] = static_cast<int32_t>(i);
  }
}

absl::StatusOr<Tokenizer> Tokenizer::Characters(absl::Span<const absl::string_view> texts,
                                                bool with_begin_end) {
  std::vector<bool> seen;  // one entry per code point up to the largest
  for (absl::string_view text : texts) {
    for (size_t offset = 0; offset < text.size();) {
      const absl::optional<uint32_t> code_point = NextCodePoint(text, &offset);
      if (!code_point) return CheckUtf8(text);
      if (*code_point >= seen.size()) seen.resize(*code_point + 1);
      seen[*code_point] = true;
    }
  }
  std::vector<uint32_t> characters;
  for (uint32_t c = 0; c < seen.size(); ++c) {
    if (seen[c]) characters.push_back(c);
  }
  if (characters.empty()) {
    return absl::InvalidArgumentError("there are no characters to make a vocabulary of");
  }
  return Tokenizer(Kind::kCharacters, std::move(characters), with_begin_end);
}

Tokenizer Tokenizer::Bytes(bool with_begin_end) {
  return Tokenizer(Kind::kBytes, {}, with_begin_end);
}

Tokenizer Tokenizer::Subwords(std::shared_ptr<const SubwordTokenizer> subwords) {
  Tokenizer tokenizer(Kind::kSubwords, {}, /*has_begin_end=*/false);
  tokenizer.subwords_ = std::move(subwords);
  tokenizer.special_.end = GuessEndTokens(*tokenizer.subwords_);
  return tokenizer;
}

std::vector<int32_t> Tokenizer::prompt_prefix() const {
  if (subwords_ != nullptr) return subwords_->post_processor().before;
  if (has_begin_end_) return {num_symbols()};
  return {};
}

absl::optional<int32_t> Tokenizer::end_token() const {
  if (special_.end.empty()) return absl::nullopt;
  return special_.end.front();
}

absl::optional<int32_t> Tokenizer::begin_token() const {
  if (special_.begin) return special_.begin;
  const std::vector<int32_t> prefix = prompt_prefix();
  return prefix.size() == 1 ? absl::optional<int32_t>(prefix.front()) : end_token();
}

absl::optional<int32_t> Tokenizer::Find(absl::string_view name) const {
  if (subwords_ == nullptr) {
    for (int32_t token = 0; token < vocab_size(); ++token) {
      const absl::StatusOr<std::string> text = Decode(absl::MakeConstSpan(&token, 1));
      if (text.ok() && !text->empty() && *text == name) return token;
    }
    return absl::nullopt;
  }
  absl::optional<int32_t> found;
  for (int32_t token = 0; token < vocab_size(); ++token) {
    if (subwords_->piece(token) != name || name.empty()) continue;
    if (subwords_->is_special(token)) return token;
    if (!found) found = token;
  }
  return found;
}

absl::StatusOr<int32_t> Tokenizer::FindNamed(absl::string_view name) const {
  if (const absl::optional<int32_t> found = Find(name)) return *found;
  std::vector<std::string> special;
  for (int32_t token = 0; subwords_ != nullptr && token < vocab_size(); ++token) {
    if (subwords_->is_special(token)) special.push_back(subwords_->piece(token));
  }
  return absl::InvalidArgumentError(absl::StrCat("the vocabulary (", Description(),
                                                 ") has no token ", QuoteName(name),
                                                 DidYouMean(name, special)));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  size_t bad_byte = 0;
  const absl::Status status = AppendTokens(text, &tokens, &bad_byte);
  if (status.ok()) return tokens;
  if (subwords_ != nullptr) {
    return Annotate(status, absl::StrCat("at byte ", bad_byte, ": "));
  }
  // Every character before the bad one is one token.
  return absl::Status(status.code(),
                      absl::StrCat("character ", tokens.size() + 1, ": ", status.message()));
}

absl::Status Tokenizer::AppendTokens(absl::string_view text, std::vector<int32_t>* tokens,
                                     size_t* bad_byte) const {
  if (subwords_ != nullptr) {
    return SubwordEncoder(subwords_.get()).Encode(text, {}, tokens, bad_byte);
  }
  if (kind_ == Kind::kBytes) {
    for (char c : text) tokens->push_back(static_cast<unsigned char>(c));
    return absl::OkStatus();
  }
  for (size_t offset = 0; offset < text.size();) {
    *bad_byte = offset;
    const absl::optional<uint32_t> code_point = NextCodePoint(text, &offset);
    if (!code_point) {
      return absl::InvalidArgumentError(absl::StrFormat("byte 0x%02x is not valid UTF-8",
                                                        static_cast<unsigned char>(text[offset])));
    }
    const int32_t token = *code_point < token_of_.size() ? token_of_[*code_point] : -1;
    if (token < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", DisplayCharacter(*code_point), "' (", CodePointName(*code_point),
                       ") is not in the vocabulary: ", Description()));
    }
    tokens->push_back(token);
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::CheckTokens(absl::Span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("token ", tokens[i], " at position ", i,
                                                   " is outside the vocabulary of ", vocab_size(),
                                                   " tokens"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> tokens) const {
  PLUMB_RETURN_IF_ERROR(CheckTokens(tokens));
  if (subwords_ != nullptr) {
    return subwords_->Decode(tokens, {/*continues=*/false, /*skip_special=*/true});
  }
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= num_symbols()) continue;
    if (kind_ == Kind::kBytes) {
      text.push_back(static_cast<char>(token));
    } else {
      AppendUtf8(characters_[static_cast<size_t>(token)], &text);
    }
  }
  return text;
}

std::string Tokenizer::TokenText(int32_t token) const {
  if (token < 0 || token >= vocab_size()) return "<invalid>";
  if (subwords_ != nullptr) return subwords_->GetText(token);
  if (token >= num_symbols()) return "<begin/end>";
  if (kind_ == Kind::kCharacters) return DisplayCharacter(characters_[static_cast<size_t>(token)]);
  if (token >= 0x80) return absl::StrFormat("\\x%02x", token);
  return DisplayCharacter(static_cast<uint32_t>(token));
}

std::string Tokenizer::Description() const {
  constexpr size_t kShown = 100;
  if (subwords_ != nullptr) {
    return absl::StrCat(subwords_->model_name(), " of ", vocab_size(), " tokens");
  }
  const char* more = has_begin_end_ ? ", and a begin/end token" : "";
  if (kind_ == Kind::kBytes) return absl::StrCat("256 bytes", more);
  std::string shown;
  for (size_t i = 0; i < characters_.size() && i < kShown; ++i) {
    shown += DisplayCharacter(characters_[i]);
  }
  if (characters_.size() > kShown) shown += "...";
  return absl::StrCat(characters_.size(),
                      characters_.size() == 1 ? " character \"" : " characters \"", shown, "\"",
                      more);
}

TokenEncoder::TokenEncoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {
  if (tokenizer->subwords() == nullptr) return;
  subwords_ = std::make_unique<SubwordEncoder>(tokenizer->subwords());
}

absl::Status TokenEncoder::Append(absl::string_view text, std::vector<int32_t>* tokens,
                                  size_t* bad_byte, bool continues) {
  if (subwords_ == nullptr) return tokenizer_->AppendTokens(text, tokens, bad_byte);
  SubwordEncoder::Options options;
  options.continues = continues;
  return subwords_->Encode(text, options, tokens, bad_byte);
}

absl::Status TokenEncoder::Append(absl::string_view text, const SubwordEncoder::Options& options,
                                  std::vector<int32_t>* tokens, size_t* bad_byte,
                                  SubwordEncoder::Progress progress) {
  if (subwords_ != nullptr) {
    return subwords_->Encode(text, options, tokens, bad_byte, progress);
  }
  // Encodes in blocks that begin at a character.
  constexpr size_t kBlock = size_t{1} << 20;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.size(), at + kBlock);
    while (end < text.size() && end > at + 1 && (text[end] & 0xC0) == 0x80) --end;
    const absl::Status status =
        tokenizer_->AppendTokens(text.substr(at, end - at), tokens, bad_byte);
    *bad_byte += at;
    PLUMB_RETURN_IF_ERROR(status);
    at = end;
    PLUMB_RETURN_IF_ERROR(progress(tokens, at));
  }
  return absl::OkStatus();
}

}  // namespace plumb
