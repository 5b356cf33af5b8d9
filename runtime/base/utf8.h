// SPDX-License-Identifier: Apache-2.0
// UTF-8, strictly (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), and the
// places and quotations that messages about text need. Pure functions.
#ifndef PLUMB_RUNTIME_BASE_UTF8_H_
#define PLUMB_RUNTIME_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace plumb {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// The code point that starts at `text[*offset]`, which is moved past it. nullopt, and `*offset`
// left alone, when the bytes there are not valid. REQUIRES: *offset < text.size().
absl::optional<uint32_t> NextCodePoint(absl::string_view text, size_t* offset);

// REQUIRES: a code point that UTF-8 can hold.
void AppendUtf8(uint32_t code_point, std::string* text);

// The first byte that no valid UTF-8 has there; nullopt when all of `text` is valid.
absl::optional<size_t> FindInvalidUtf8(absl::string_view text);

// Number of bytes at the end of `text` that begin a character of which more bytes may follow: 0..3.
size_t IncompleteUtf8End(absl::string_view text);

// OK, or `line 3, byte 41 (0xe9) is not valid UTF-8`, bytes of the whole text counted from 0.
absl::Status CheckUtf8(absl::string_view text);

// Line and column of a byte, from 1; columns count characters, as editors do.
struct TextPlace {
  int64_t line = 1;
  int64_t column = 1;
};
TextPlace PlaceOf(absl::string_view text, size_t offset);

// A character as messages show it: `a`, `é`, `\n`, `\u{200b}` for what a terminal would not show.
std::string DisplayCharacter(uint32_t code_point);
// "U+00E9".
std::string CodePointName(uint32_t code_point);

// `text` as a terminal may get it: line breaks, tabs and all that prints stay; other controls
// (which move the cursor or rewrite what was shown) and marks of direction become `\r` or `\u{1b}`,
// bytes that are not UTF-8 `\xff`.
std::string PrintableText(absl::string_view text);
// The same of a JSON value as text, which stays the same value: what is escaped is in its strings.
// REQUIRES: UTF-8.
std::string PrintableJson(absl::string_view json);

// A name out of a file in double quotes, escaped, and cut when it is very long.
std::string QuoteName(absl::string_view name);

// A word or number of a user's as a message may show it: printable, and its first 60 bytes, then
// "...", if it is longer.
std::string Excerpt(absl::string_view text);

// A message that quotes a user's text, which may have megabytes: what is said before and after the
// quotation, and how many bytes are left out between.
std::string ShortMessage(absl::string_view message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_UTF8_H_
