// SPDX-License-Identifier: Apache-2.0
// Lexer: splits protobuf's text format (https://protobuf.dev/reference/protobuf/textformat-spec)
// into tokens. Internal to runtime/schema. Thread-compatible.
#ifndef PLUMB_RUNTIME_SCHEMA_LEXER_H_
#define PLUMB_RUNTIME_SCHEMA_LEXER_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace plumb::textproto {

// Location in a text, counted from 1. A column is a byte; a tab continues to the next multiple
// of 8. 0: not in the text.
struct Location {
  int line = 0;
  int column = 0;
};

enum class TokenKind {
  kEnd,
  kIdentifier,
  kInteger,  // unsigned: decimal, 0x..., or octal with a leading zero
  kFloat,    // unsigned
  kString,   // including its quotes; its escapes are valid
  kSymbol,   // one character
  kError,    // an error: no token begins here, and `text` is empty
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  absl::string_view text;
  Location location;
};

class Lexer {
 public:
  // Starts at the first token. `text` must outlive the lexer.
  explicit Lexer(absl::string_view text) : text_(text) { Next(); }

  const Token& current() const { return current_; }
  // Moves to the next token. Does not move beyond an error or the end.
  void Next();
  // Error message. Requires: current() is a kError.
  const std::string& error() const { return error_; }

 private:
  bool AtEnd() const { return offset_ == text_.size(); }
  // Returns the character `ahead` characters from here; 0 beyond the end.
  char Peek(size_t ahead = 0) const {
    return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0';
  }
  void Advance(size_t n = 1);
  void SkipSpaceAndComments();
  TokenKind Number();
  TokenKind String();
  bool Escape();
  TokenKind OtherCharacter();
  TokenKind Error(Location location, std::string what);

  absl::string_view text_;
  size_t offset_ = 0;
  Location here_{1, 1};
  Token current_;
  std::string error_;
};

// Appends the content of a string token. Requires: the text of a kString.
void AppendUnescaped(absl::string_view token, std::string* content);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_LEXER_H_
