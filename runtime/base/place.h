// Text: a piece of a user's file that remembers where it stood, for errors that point at it. A
// value.
#ifndef PLUMB_RUNTIME_BASE_PLACE_H_
#define PLUMB_RUNTIME_BASE_PLACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb {

struct Place {
  std::string file;  // as the user named it; "" for text that no file holds
  int line = 0;      // from 1; 0 = unknown
  int column = 0;    // from 1

  std::string ToString() const;  // "pre.pbtxt:12:9", "pre.pbtxt", or ""
};

struct Text {
  std::string value;
  Place place;
};

// kInvalidArgument "pre.pbtxt:12:9: <message>". A message that quotes megabytes is cut
// (ShortMessage).
absl::Status ErrorAt(const Place& place, absl::string_view message);

// The same for a mistake inside a one-line text, with the text and a caret under `offset`:
//   pre.pbtxt:12:9: <message>
//     x = x + f(nrom(x))
//               ^
absl::Status ErrorInText(const Text& text, size_t offset, absl::string_view message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PLACE_H_
