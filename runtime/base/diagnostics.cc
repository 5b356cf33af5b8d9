// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/diagnostics.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/utf8.h"

namespace plumb {

std::string SourceLocation::ToString() const {
  if (line == 0) return file;
  return absl::StrCat(file, ":", line, ":", column);
}

absl::Status ErrorAt(const SourceLocation& place, absl::string_view message) {
  const std::string where = place.ToString();
  return absl::InvalidArgumentError(
      absl::StrCat(where, where.empty() ? "" : ": ", ShortMessage(message)));
}

absl::Status ErrorInText(const SourceText& text, size_t offset, absl::string_view message) {
  std::string line = text.value;
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  offset = std::min(offset, line.size());
  // A line that would wrap is shown only around the caret.
  constexpr size_t kMaxLength = 160;
  constexpr size_t kAround = 60;
  if (line.size() > kMaxLength) {
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

namespace {

char Fold(char c) {
  if (c == '-' || c == ' ') return '_';
  return absl::ascii_tolower(static_cast<unsigned char>(c));
}

// Optimal string alignment distance: insertions, deletions, replacements, swaps of neighbours.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Fold(a[i - 1]) == Fold(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && Fold(a[i - 1]) == Fold(b[j - 2]) && Fold(a[i - 2]) == Fold(b[j - 1])) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string DidYouMean(absl::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kMaxComparedLength = 64;
  if (name.size() > kMaxComparedLength) return "";
  const size_t farthest = std::max<size_t>(1, name.size() / 3);  // beyond it, the names differ
  const std::string* best = nullptr;
  size_t best_distance = farthest + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxComparedLength) continue;
    // "mix_norm" means "org.example.mix_norm", however near another name is.
    const bool is_end = absl::EndsWith(candidate, absl::StrCat(".", name));
    size_t distance = is_end ? 0 : EditDistance(name, candidate);
    // If every character had to change, it is no misspelling: "y" does not mean "x".
    if (distance >= std::max(name.size(), candidate.size())) continue;
    // "layers" for "layer", "norm" for "norm_out": one name is a prefix of the other. A true
    // misspelling is still nearer.
    const size_t common = std::min(name.size(), candidate.size());
    if (common >= 3 && EditDistance(name.substr(0, common), candidate.substr(0, common)) == 0) {
      distance = std::min(distance, farthest);
    }
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : absl::StrCat("; did you mean \"", *best, "\"?");
}

}  // namespace plumb
