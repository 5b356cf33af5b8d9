#include "runtime/base/place.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/utf8.h"

namespace plumb {

std::string Place::ToString() const {
  if (line == 0) return file;
  return absl::StrCat(file, ":", line, ":", column);
}

absl::Status ErrorAt(const Place& place, absl::string_view message) {
  const std::string where = place.ToString();
  return absl::InvalidArgumentError(
      absl::StrCat(where, where.empty() ? "" : ": ", ShortMessage(message)));
}

absl::Status ErrorInText(const Text& text, size_t offset, absl::string_view message) {
  std::string line = text.value;
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  offset = std::min(offset, line.size());
  // Of a line that would wrap, what is around the caret.
  constexpr size_t kLongest = 160;
  constexpr size_t kAround = 60;
  if (line.size() > kLongest) {
    if (line.size() > offset + kAround)
      line = absl::StrCat(line.substr(0, offset + kAround), "...");
    if (offset > kAround) {
      line = absl::StrCat("...", line.substr(offset - kAround));
      offset = kAround + 3;
    }
  }
  const std::string caret(offset, ' ');
  return ErrorAt(text.place, absl::StrCat(ShortMessage(message), "\n  ", line, "\n  ", caret, "^"));
}

}  // namespace plumb
