// Lists of mistakes in errors.
#ifndef PLUMB_RUNTIME_BASE_MISTAKES_H_
#define PLUMB_RUNTIME_BASE_MISTAKES_H_

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace plumb {

// More are counted, not shown: a file may have hundreds of thousands.
inline constexpr size_t kShownMistakes = 20;

// The first of `mistakes`, with `separator` between them, and how many others there are.
inline std::string ListMistakes(absl::Span<const std::string> mistakes,
                                absl::string_view separator = "\n") {
  const size_t shown = std::min(mistakes.size(), kShownMistakes);
  std::string text = absl::StrJoin(mistakes.subspan(0, shown), separator);
  if (shown < mistakes.size()) {
    absl::StrAppend(&text, separator, "... and ", mistakes.size() - shown, " more");
  }
  return text;
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_MISTAKES_H_
