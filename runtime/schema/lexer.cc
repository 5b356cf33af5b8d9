// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/lexer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "runtime/base/utf8.h"

namespace plumb::textproto {
namespace {

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsOctalDigit(char c) { return c >= '0' && c <= '7'; }
bool IsHexDigit(char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); }
bool IsLetter(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsControl(char c) { return static_cast<unsigned char>(c) < ' '; }

// Returns the value of a digit. Requires: a hexadecimal digit.
uint32_t DigitValue(char c) {
  return static_cast<uint32_t>(IsDigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
}

// Escapes of a single letter, and the characters that they stand for.
constexpr absl::string_view kEscapes = "abfnrtv\\?'\"";
constexpr absl::string_view kEscaped = "\a\b\f\n\r\t\v\\?'\"";

// Removes `n` hexadecimal digits from the front of `text` and returns their number.
uint32_t TakeHex(absl::string_view* text, size_t n) {
  uint32_t number = 0;
  for (const char c : text->substr(0, n)) number = number << 4 | DigitValue(c);
  text->remove_prefix(n);
  return number;
}

bool IsHeadSurrogate(uint32_t code) { return code >= 0xD800 && code < 0xDC00; }
bool IsTailSurrogate(uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

// Removes "uXXXX" or "UXXXXXXXX" from the front of `text` and returns the code point. Two \u
// escapes that are a UTF-16 surrogate pair are one code point.
uint32_t TakeCodePoint(absl::string_view* text) {
  const size_t digits = text->front() == 'u' ? 4 : 8;
  text->remove_prefix(1);
  const uint32_t code = TakeHex(text, digits);
  if (!IsHeadSurrogate(code) || !absl::StartsWith(*text, "\\u")) return code;
  absl::string_view rest = text->substr(2);
  const uint32_t tail = TakeHex(&rest, 4);
  if (!IsTailSurrogate(tail)) return code;
  *text = rest;
  return 0x10000 + ((code - 0xD800) << 10 | (tail - 0xDC00));
}

// Appends a code point. An unpaired surrogate becomes three bytes that are not valid UTF-8, so that
// the check of the content reports it.
void AppendCodePoint(uint32_t code, std::string* content) {
  if (!IsHeadSurrogate(code) && !IsTailSurrogate(code)) return AppendUtf8(code, content);
  content->push_back(static_cast<char>(0xE0 | code >> 12));
  content->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
  content->push_back(static_cast<char>(0x80 | (code & 0x3F)));
}

}  // namespace

void Lexer::Advance(size_t n) {
  for (; n > 0 && !AtEnd(); --n, ++offset_) {
    const char c = text_[offset_];
    if (c == '\n') {
      here_ = {here_.line + 1, 1};
    } else if (c == '\t') {
      here_.column += 8 - (here_.column - 1) % 8;
    } else {
      ++here_.column;
    }
  }
}

TokenKind Lexer::Error(Location location, std::string what) {
  current_.location = location;
  error_ = std::move(what);
  return TokenKind::kError;
}

void Lexer::SkipSpaceAndComments() {
  while (!AtEnd()) {
    if (Peek() == '#') {
      while (Peek() != '\n' && Peek() != '\0') Advance();
    } else if (IsSpace(Peek())) {
      Advance();
    } else {
      return;
    }
  }
}

void Lexer::Next() {
  if (current_.kind == TokenKind::kError) return;
  SkipSpaceAndComments();
  const size_t begin = offset_;
  current_.location = here_;
  const char c = Peek();
  if (AtEnd()) {
    current_.kind = TokenKind::kEnd;
  } else if (IsLetter(c)) {
    while (IsLetter(Peek()) || IsDigit(Peek())) Advance();
    current_.kind = TokenKind::kIdentifier;
  } else if (IsDigit(c) || (c == '.' && IsDigit(Peek(1)))) {
    current_.kind = Number();
  } else if (c == '"' || c == '\'') {
    current_.kind = String();
  } else {
    current_.kind = OtherCharacter();
  }
  const bool is_token = current_.kind != TokenKind::kError;
  current_.text = is_token ? text_.substr(begin, offset_ - begin) : "";
}

TokenKind Lexer::OtherCharacter() {
  if (IsControl(Peek())) {
    return Error(here_, absl::StrCat("a control character, ",
                                     CodePointName(static_cast<unsigned char>(Peek())),
                                     ", outside of quotes"));
  }
  if (absl::ascii_isascii(static_cast<unsigned char>(Peek()))) {
    Advance();
    return TokenKind::kSymbol;
  }
  if (offset_ == 0 && absl::StartsWith(text_, "\xEF\xBB\xBF")) {
    return Error(here_, "the text begins with a byte order mark; save it as UTF-8 without one");
  }
  size_t end = offset_;
  const absl::optional<uint32_t> code = NextCodePoint(text_, &end);
  return Error(here_, code.has_value()
                          ? absl::StrCat("a \"", DisplayCharacter(*code), "\" outside of quotes")
                          : "a byte that is not UTF-8, outside of quotes");
}

TokenKind Lexer::Number() {
  const size_t begin = offset_;
  const Location start = here_;
  bool is_float = false;
  const auto digits = [this](bool (*is_digit)(char)) {
    const size_t first = offset_;
    while (is_digit(Peek())) Advance();
    return offset_ > first;
  };
  if (Peek() == '0' && (Peek(1) == 'x' || Peek(1) == 'X')) {
    Advance(2);
    if (!digits(IsHexDigit)) return Error(start, "\"0x\" without hexadecimal digits");
  } else if (Peek() == '0' && IsDigit(Peek(1))) {
    digits(IsOctalDigit);
    if (IsDigit(Peek())) {
      return Error(start, "a number that begins with 0 is octal: its digits are 0 to 7");
    }
  } else {
    digits(IsDigit);
    if (Peek() == '.') {
      is_float = true;
      Advance();
      digits(IsDigit);
    }
    if (Peek() == 'e' || Peek() == 'E') {
      is_float = true;
      Advance();
      if (Peek() == '-' || Peek() == '+') Advance();
      if (!digits(IsDigit)) return Error(start, "a number whose exponent has no digits");
    }
    if (Peek() == 'f' || Peek() == 'F') {
      is_float = true;
      Advance();
    }
  }
  if (IsLetter(Peek()) || Peek() == '.') {
    return Error(start, absl::StrCat("\"", Excerpt(text_.substr(begin, offset_ - begin)),
                                     "\" and \"", text_.substr(offset_, 1),
                                     "\" together are not a number; is a space missing?"));
  }
  return is_float ? TokenKind::kFloat : TokenKind::kInteger;
}

TokenKind Lexer::String() {
  const Location start = here_;
  const char quote = Peek();
  Advance();
  while (Peek() != quote) {
    if (AtEnd() || Peek() == '\n') {
      return Error(start, absl::StrCat("no ", absl::string_view(&quote, 1),
                                       " ends this text; it has to, in the same line"));
    }
    if (Peek() == '\0') return Error(here_, "a control character, U+0000; write it as \\000");
    if (Peek() != '\\') {
      Advance();
    } else if (!Escape()) {
      return TokenKind::kError;
    }
  }
  Advance();
  return TokenKind::kString;
}

// Moves past an escape. Returns false and sets the error if it is not one.
bool Lexer::Escape() {
  const Location start = here_;
  Advance();
  const char key = Peek();
  if (IsOctalDigit(key) || (key != '\0' && absl::StrContains(kEscapes, key))) {
    Advance();  // further octal digits pass as ordinary characters here
    return true;
  }
  if (key == 'x') {
    Advance();
    if (IsHexDigit(Peek())) return true;
    Error(start, "\"\\x\" without hexadecimal digits");
    return false;
  }
  if (key == 'u' || key == 'U') {
    const size_t digits = key == 'u' ? 4 : 8;
    Advance();
    absl::string_view hex = text_.substr(offset_, digits);
    bool valid = hex.size() == digits;
    for (const char c : hex) valid = valid && IsHexDigit(c);
    if (valid && TakeHex(&hex, digits) <= kMaxCodePoint) {
      Advance(digits);
      return true;
    }
    Error(start, key == 'u' ? "\"\\u\" needs four hexadecimal digits"
                            : "\"\\U\" needs eight hexadecimal digits, of at most 0010FFFF");
    return false;
  }
  Error(start, key == '\0' || key == '\n' || !absl::ascii_isprint(static_cast<unsigned char>(key))
                   ? "a \"\\\" that escapes nothing; a backslash itself is \"\\\\\""
                   : absl::StrCat("unknown escape \"\\", absl::string_view(&key, 1),
                                  "\"; a backslash itself is \"\\\\\""));
  return false;
}

void AppendUnescaped(absl::string_view token, std::string* content) {
  absl::string_view rest = token.substr(1, token.size() - 2);
  while (!rest.empty()) {
    if (rest.front() != '\\') {
      const size_t n = std::min(rest.find('\\'), rest.size());
      absl::StrAppend(content, rest.substr(0, n));
      rest.remove_prefix(n);
      continue;
    }
    rest.remove_prefix(1);
    const char key = rest.front();
    if (IsOctalDigit(key)) {
      uint32_t byte = 0;
      for (int i = 0; i < 3 && !rest.empty() && IsOctalDigit(rest.front()); ++i) {
        byte = byte * 8 + DigitValue(rest.front());
        rest.remove_prefix(1);
      }
      content->push_back(static_cast<char>(byte));
    } else if (key == 'x') {
      rest.remove_prefix(1);
      const size_t digits = rest.size() > 1 && IsHexDigit(rest[1]) ? 2 : 1;
      content->push_back(static_cast<char>(TakeHex(&rest, digits)));
    } else if (key == 'u' || key == 'U') {
      AppendCodePoint(TakeCodePoint(&rest), content);
    } else {
      content->push_back(kEscaped[kEscapes.find(key)]);
      rest.remove_prefix(1);
    }
  }
}

}  // namespace plumb::textproto
