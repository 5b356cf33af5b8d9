// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/text_difference.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"

namespace plumb {
namespace {

void AppendLines(absl::string_view mark, absl::Span<const absl::string_view> lines, size_t max,
                 std::string* text) {
  for (size_t i = 0; i < std::min(lines.size(), max); ++i) {
    absl::StrAppend(text, "\n  ", mark, " ", lines[i]);
  }
  if (lines.size() > max) absl::StrAppend(text, "\n  ", mark, " … ", lines.size() - max, " more");
}

}  // namespace

std::string TextDifference(absl::string_view then, absl::string_view now, size_t max) {
  if (then == now) return "";
  const std::vector<absl::string_view> before = absl::StrSplit(then, '\n');
  const std::vector<absl::string_view> after = absl::StrSplit(now, '\n');
  const size_t shorter = std::min(before.size(), after.size());
  size_t first = 0, last = 0;  // numbers of equal lines at the beginning and at the end
  while (first < shorter && before[first] == after[first]) ++first;
  while (last < shorter - first &&
         before[before.size() - 1 - last] == after[after.size() - 1 - last]) {
    ++last;
  }
  const auto middle = [first, last](const std::vector<absl::string_view>& lines) {
    return absl::MakeConstSpan(lines).subspan(first, lines.size() - first - last);
  };
  std::string text;
  AppendLines("-", middle(before), max, &text);
  AppendLines("+", middle(after), max, &text);
  return text;
}

}  // namespace plumb
