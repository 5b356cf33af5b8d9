#include "runtime/data/tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/utf8.h"

namespace plumb {

Tokenizer::Tokenizer(Kind kind, std::vector<uint32_t> characters, bool has_begin_end)
    : kind_(kind), has_begin_end_(has_begin_end), characters_(std::move(characters)) {
  if (characters_.empty()) return;
  token_of_.assign(characters_.back() + 1, -1);
  for (size_t i = 0; i < characters_.size(); ++i) {
    token_of_[characters_[i]] = static_cast<int32_t>(i);
  }
}

absl::StatusOr<Tokenizer> Tokenizer::Characters(absl::Span<const absl::string_view> texts,
                                                bool with_begin_end) {
  std::vector<bool> seen;  // up to the largest
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

absl::optional<int32_t> Tokenizer::begin_end_token() const {
  if (!has_begin_end_) return absl::nullopt;
  return num_symbols();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  size_t bad_byte = 0;
  const absl::Status status = AppendTokens(text, &tokens, &bad_byte);
  if (status.ok()) return tokens;
  // Every character before the bad one gave one token.
  return absl::Status(status.code(),
                      absl::StrCat("character ", tokens.size() + 1, ": ", status.message()));
}

absl::Status Tokenizer::AppendTokens(absl::string_view text, std::vector<int32_t>* tokens,
                                     size_t* bad_byte) const {
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

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i];
    if (token < 0 || token >= vocab_size()) {
      return absl::InvalidArgumentError(absl::StrCat("token ", token, " at position ", i,
                                                     " is outside the vocabulary of ", vocab_size(),
                                                     " tokens"));
    }
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
  if (token >= num_symbols()) return "<begin/end>";
  if (kind_ == Kind::kCharacters) return DisplayCharacter(characters_[static_cast<size_t>(token)]);
  if (token >= 0x80) return absl::StrFormat("\\x%02x", token);
  return DisplayCharacter(static_cast<uint32_t>(token));
}

std::string Tokenizer::Description() const {
  constexpr size_t kShown = 100;
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

}  // namespace plumb
