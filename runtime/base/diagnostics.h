// SPDX-License-Identifier: Apache-2.0
// Errors in files that a user wrote: their locations, suggestions, and lists of them. Stateless.
#ifndef PLUMB_RUNTIME_BASE_DIAGNOSTICS_H_
#define PLUMB_RUNTIME_BASE_DIAGNOSTICS_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace plumb {

// Number of errors that are shown. The rest is only counted: a file may have hundreds of thousands.
inline constexpr size_t kShownDiagnostics = 20;

// Returns the first errors, joined by `separator`, and the number of the others.
inline std::string ListDiagnostics(absl::Span<const std::string> errors,
                                   absl::string_view separator = "\n") {
  const size_t shown = std::min(errors.size(), kShownDiagnostics);
  std::string text = absl::StrJoin(errors.subspan(0, shown), separator);
  if (shown < errors.size()) {
    absl::StrAppend(&text, separator, "... and ", errors.size() - shown, " more");
  }
  return text;
}

// Location in a user's file.
struct SourceLocation {
  std::string file;  // name that the user gave; "" for text that is not from a file
  int line = 0;      // counted from 1; 0: unknown
  int column = 0;    // counted from 1

  std::string ToString() const;  // "pre.pbtxt:12:9", "pre.pbtxt", or ""
};

// Text from a user's file with its location, for error messages that point at it.
struct SourceText {
  std::string value;
  SourceLocation place;
};

// Returns kInvalidArgument "pre.pbtxt:12:9: <message>". A very long message is shortened
// (ShortMessage).
absl::Status ErrorAt(const SourceLocation& place, absl::string_view message);

// Returns the same for an error inside a one-line text, with the text and a caret under `offset`:
//   pre.pbtxt:12:9: <message>
//     x = x + f(nrom(x))
//               ^
absl::Status ErrorInText(const SourceText& text, size_t offset, absl::string_view message);

// Returns `; did you mean "layer"?` with the candidate nearest to a misspelt name, or "" if none is
// near enough.
std::string DidYouMean(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_DIAGNOSTICS_H_
