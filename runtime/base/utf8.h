// SPDX-License-Identifier: Apache-2.0
// Strict UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), and the
// locations and quotations that messages about text need. Pure functions.
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

// Returns the code point that starts at `text[*offset]` and moves `*offset` past it. Returns
// nullopt and keeps `*offset` if the bytes there are not valid. Requires: *offset < text.size().
absl::optional<uint32_t> NextCodePoint(absl::string_view text, size_t* offset);

// Appends a code point. Requires: UTF-8 can represent it.
void AppendUtf8(uint32_t code_point, std::string* text);

// Returns the offset of the first invalid sequence; nullopt if all of `text` is valid UTF-8.
absl::optional<size_t> FindInvalidUtf8(absl::string_view text);

// Returns the number of bytes at the end of `text` that begin an incomplete character: 0..3.
size_t IncompleteUtf8End(absl::string_view text);

// Returns OK, or the error `line 3, byte 41 (0xe9) is not valid UTF-8`; bytes count from 0.
absl::Status CheckUtf8(absl::string_view text);

// Line and column of a byte, counted from 1; columns count characters, as editors do.
struct TextPlace {
  int64_t line = 1;
  int64_t column = 1;
};
TextPlace GetPlace(absl::string_view text, size_t offset);

// Returns a character as messages show it: `a`, `é`, `\n`, or `\u{200b}` for an invisible one.
std::string DisplayCharacter(uint32_t code_point);
// Returns a name like "U+00E9".
std::string CodePointName(uint32_t code_point);

// Returns `text` in a form that is safe for a terminal: line breaks, tabs and printable characters
// stay; other controls (which move the cursor or rewrite the screen) and direction marks become
// `\r` or `\u{1b}`, and invalid bytes become `\xff`.
std::string PrintableText(absl::string_view text);
// Does the same for JSON text, whose value stays the same: only characters in strings are escaped.
// Requires: UTF-8.
std::string PrintableJson(absl::string_view json);

// Returns printable text as XML and HTML contain it, in an element or in a quoted attribute.
std::string XmlText(absl::string_view text);

// Returns a name from a file in double quotes, escaped, and shortened if it is very long.
std::string QuoteName(absl::string_view name);

// Returns a user's word or number for a message: printable, and shortened to 60 bytes and "..." if
// it is longer.
std::string Excerpt(absl::string_view text);

// Returns a message that quotes a user's text, which may have megabytes: the parts before and after
// the quotation, and the number of bytes dropped between them.
std::string ShortMessage(absl::string_view message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_UTF8_H_
