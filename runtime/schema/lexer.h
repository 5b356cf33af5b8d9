// SPDX-License-Identifier: Apache-2.0
// Lexer: protobuf's text format (https://protobuf.dev/reference/protobuf/textformat-spec) cut into
// tokens. Internal to runtime/schema. Thread-compatible.
#ifndef PLUMB_RUNTIME_SCHEMA_LEXER_H_
#define PLUMB_RUNTIME_SCHEMA_LEXER_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/schema/reader.h"

namespace plumb::textproto {

enum class TokenKind {
  kEnd,
  kIdentifier,
  kInteger,  // without a sign: decimal, 0x or, with a leading zero, octal
  kFloat,    // without a sign
  kString,   // with its quotes; its escapes are valid
  kSymbol,   // one character
  kMistake,  // no token begins here; `text` is empty
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  absl::string_view text;
  Location location;
};

class Lexer {
 public:
  // Stands at the first token. `text` must outlive it.
  explicit Lexer(absl::string_view text) : text_(text) { Next(); }

  const Token& current() const { return current_; }
  // Stays at a mistake, and at the end.
  void Next();
  // What is wrong at a kMistake.
  const std::string& mistake() const { return mistake_; }

 private:
  bool AtEnd() const { return offset_ == text_.size(); }
  // The character at `ahead` from here; 0 beyond the end.
  char Peek(size_t ahead = 0) const {
    return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0';
  }
  void Advance(size_t n = 1);
  void SkipSpaceAndComments();
  TokenKind Number();
  TokenKind String();
  bool Escape();
  TokenKind OtherCharacter();
  TokenKind Mistake(Location location, std::string what);

  absl::string_view text_;
  size_t offset_ = 0;
  Location here_{1, 1};
  Token current_;
  std::string mistake_;
};

// The content of a string token, appended. REQUIRES: a kString's text.
void AppendUnescaped(absl::string_view token, std::string* content);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_LEXER_H_
