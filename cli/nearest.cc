#include "cli/nearest.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace plumb::cli {
namespace {

constexpr size_t kLongestWord = 64;

// Letters to insert, delete or replace (Levenshtein), row by row.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& words) {
  if (word.size() > kLongestWord) return "";
  size_t nearest_distance = std::max<size_t>(2, word.size() / 3) + 1;  // this far is another word
  const std::string* nearest = nullptr;
  for (const std::string& candidate : words) {
    if (candidate.size() > kLongestWord) continue;
    const size_t distance = Distance(word, candidate);
    if (distance >= nearest_distance || distance >= std::max(word.size(), candidate.size()))
      continue;
    nearest_distance = distance;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : absl::StrCat("; did you mean \"", *nearest, "\"?");
}

}  // namespace plumb::cli
