// Text from files and models for a terminal.
#ifndef PLUMB_RUNTIME_TOOLS_TEXT_H_
#define PLUMB_RUNTIME_TOOLS_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// Messages, descriptions and samples quote names and texts as they stand in files, with whatever
// bytes they have, and a terminal obeys some of those. This is `text` with line breaks, tabs and
// all that prints left alone, controls and marks of direction as `\r` or `\u{1b}`, and bytes that
// are not UTF-8 as `\xff`.
std::string ToPrintable(absl::string_view text);

// The same of a JSON value as text, which stays the same value: such characters are inside of its
// strings, and become `\u001b`. Bytes that are not UTF-8 become U+FFFD.
std::string ToPrintableJson(absl::string_view json);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_TEXT_H_
