// SPDX-License-Identifier: Apache-2.0
// Mistakes in what a user wrote: where they stand, what was meant, and lists of them. Stateless.
#ifndef PLUMB_RUNTIME_BASE_MISTAKES_H_
#define PLUMB_RUNTIME_BASE_MISTAKES_H_

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

// Number of mistakes that are shown; more are counted, as a file may have hundreds of thousands.
inline constexpr size_t kShownMistakes = 20;

// Returns the first of `mistakes`, with `separator` between them, and how many others there are.
inline std::string ListMistakes(absl::Span<const std::string> mistakes,
                                absl::string_view separator = "\n") {
  const size_t shown = std::min(mistakes.size(), kShownMistakes);
  std::string text = absl::StrJoin(mistakes.subspan(0, shown), separator);
  if (shown < mistakes.size()) {
    absl::StrAppend(&text, separator, "... and ", mistakes.size() - shown, " more");
  }
  return text;
}

// Place in a user's file.
struct Place {
  std::string file;  // as the user named it; "" for text that no file holds
  int line = 0;      // from 1; 0 = unknown
  int column = 0;    // from 1

  std::string ToString() const;  // "pre.pbtxt:12:9", "pre.pbtxt", or ""
};

// Text of a user's file that remembers where it stood, for errors that point at it.
struct Text {
  std::string value;
  Place place;
};

// Returns kInvalidArgument "pre.pbtxt:12:9: <message>". A message that quotes megabytes is cut
// (ShortMessage).
absl::Status ErrorAt(const Place& place, absl::string_view message);

// Returns the same for a mistake inside a one-line text, with the text and a caret under `offset`:
//   pre.pbtxt:12:9: <message>
//     x = x + f(nrom(x))
//               ^
absl::Status ErrorInText(const Text& text, size_t offset, absl::string_view message);

// Returns `; did you mean "layer"?` for the candidate that is nearest to a misspelt name, or ""
// when none is near enough to be meant.
std::string DidYouMean(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_MISTAKES_H_
