// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/utf8.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace plumb {
namespace {

// Returns true for characters that control a terminal instead of printing: C0 and C1 controls, line
// and paragraph separators, and characters that change the direction of text.
bool CommandsTerminal(uint32_t code_point) {
  const auto within = [&](uint32_t first, uint32_t last) {
    return code_point >= first && code_point <= last;
  };
  if (code_point == '\n' || code_point == '\t') return false;
  return within(0, 0x1F) || within(0x7F, 0x9F) || code_point == 0x61C || within(0x200E, 0x200F) ||
         within(0x2028, 0x202E) || within(0x2066, 0x2069);
}

// Returns `text` with unprintable characters replaced by escape(code point) and invalid bytes by
// escape_byte(byte).
template <class Escape, class EscapeByte>
std::string Escaped(absl::string_view text, const Escape& escape, const EscapeByte& escape_byte) {
  std::string escaped;
  escaped.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const absl::optional<uint32_t> code_point = NextCodePoint(text, &offset);
    if (!code_point) {
      escaped += escape_byte(static_cast<unsigned char>(text[offset++]));
    } else if (CommandsTerminal(*code_point)) {
      escaped += escape(*code_point);
    } else {
      escaped.append(text.data() + begin, offset - begin);
    }
  }
  return escaped;
}

// Returns the length of the longest prefix of at most `max` bytes that ends between characters.
size_t WholeCharacters(absl::string_view text, size_t max) {
  if (text.size() <= max) return text.size();
  size_t end = max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

}  // namespace

absl::optional<uint32_t> NextCodePoint(absl::string_view text, size_t* offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(*offset);
  if (lead < 0x80) {
    ++*offset;
    return lead;
  }
  size_t length;
  uint32_t smallest;  // a smaller code point would be an overlong form
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    smallest = 0x80;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    smallest = 0x800;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    smallest = 0x10000;
  } else {
    return absl::nullopt;
  }
  if (text.size() - *offset < length) return absl::nullopt;
  uint32_t code_point = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const uint32_t next = byte(*offset + i);
    if ((next & 0xC0) != 0x80) return absl::nullopt;
    code_point = code_point << 6 | (next & 0x3F);
  }
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < smallest || code_point > kMaxCodePoint || surrogate) return absl::nullopt;
  *offset += length;
  return code_point;
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  const auto tail = [&](int shift) {
    text->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text->push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    text->push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

absl::optional<size_t> FindInvalidUtf8(absl::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    if (!NextCodePoint(text, &offset)) return offset;
  }
  return absl::nullopt;
}

size_t IncompleteUtf8End(absl::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((byte & 0xC0) == 0x80) continue;  // a continuation byte
    if (byte < 0xC2 || byte > 0xF4) return 0;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return bytes < length ? bytes : 0;
  }
  return 0;
}

absl::Status CheckUtf8(absl::string_view text) {
  const absl::optional<size_t> bad = FindInvalidUtf8(text);
  if (!bad) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("line %d, byte %d (0x%02x) is not valid UTF-8",
                                                    GetPlace(text, *bad).line, *bad,
                                                    static_cast<unsigned char>(text[*bad])));
}

TextPlace GetPlace(absl::string_view text, size_t offset) {
  TextPlace place;
  for (char c : text.substr(0, offset)) {
    if (c == '\n') {
      ++place.line;
      place.column = 1;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
      ++place.column;
    }
  }
  return place;
}

std::string DisplayCharacter(uint32_t code_point) {
  if (code_point == '\n') return "\\n";
  if (code_point == '\r') return "\\r";
  if (code_point == '\t') return "\\t";
  // Controls, and the invisible or direction-changing characters of general punctuation.
  const bool hidden = code_point < 0x20 || (code_point >= 0x7F && code_point <= 0xA0) ||
                      code_point == 0x61C || (code_point >= 0x200B && code_point <= 0x200F) ||
                      (code_point >= 0x2028 && code_point <= 0x202E) ||
                      (code_point >= 0x2060 && code_point <= 0x206F) || code_point == 0xFEFF;
  if (hidden) return absl::StrFormat("\\u{%x}", code_point);
  std::string text;
  AppendUtf8(code_point, &text);
  return text;
}

std::string PrintableText(absl::string_view text) {
  return Escaped(text, DisplayCharacter,
                 [](unsigned char byte) { return absl::StrFormat("\\x%02x", byte); });
}

std::string PrintableJson(absl::string_view json) {
  return Escaped(
      json, [](uint32_t code_point) { return absl::StrFormat("\\u%04x", code_point); },
      [](unsigned char) { return "\xEF\xBF\xBD"; });  // U+FFFD
}

std::string XmlText(absl::string_view text) {
  return absl::StrReplaceAll(
      PrintableText(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string CodePointName(uint32_t code_point) { return absl::StrFormat("U+%04X", code_point); }

std::string QuoteName(absl::string_view name) {
  constexpr size_t kMaxLength = 120;
  const bool cut = name.size() > kMaxLength;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name.substr(0, kMaxLength)), cut ? "..." : "",
                      "\"");
}

std::string Excerpt(absl::string_view text) {
  constexpr size_t kMaxLength = 60;
  const size_t end = WholeCharacters(text, kMaxLength);
  return absl::StrCat(PrintableText(text.substr(0, end)), end < text.size() ? "..." : "");
}

std::string ShortMessage(absl::string_view message) {
  constexpr size_t kMaxLength = 4000;
  constexpr size_t kBefore = 2000, kAfter = 1000;
  if (message.size() <= kMaxLength) return std::string(message);
  const size_t before = WholeCharacters(message, kBefore);
  const size_t after = WholeCharacters(message, message.size() - kAfter);
  return absl::StrCat(message.substr(0, before), "... (", after - before, " bytes) ...",
                      message.substr(after));
}

}  // namespace plumb
