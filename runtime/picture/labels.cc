// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/labels.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plumb {

namespace {

constexpr absl::string_view kAny = "…";

// Consumes a number or the placeholder for any number from the front of `text`.
absl::string_view TakeNumber(absl::string_view* text) {
  const absl::string_view all = *text;
  if (absl::ConsumePrefix(text, kAny)) return kAny;
  size_t end = 0;
  while (end < all.size() && (absl::ascii_isdigit(all[end]) || all[end] == '.')) ++end;
  if (end > 0 && end + 1 < all.size() && all[end] == 'e') {  // "1e-05"
    size_t exponent = end + 1 + (all[end + 1] == '-' || all[end + 1] == '+' ? 1 : 0);
    const size_t digits = exponent;
    while (exponent < all.size() && absl::ascii_isdigit(all[exponent])) ++exponent;
    if (exponent > digits) end = exponent;
  }
  text->remove_prefix(end);
  return all.substr(0, end);
}

}  // namespace

std::optional<std::string> CommonLabel(absl::string_view a, absl::string_view b) {
  std::string common;
  while (!a.empty() || !b.empty()) {
    const bool in_name =
        !common.empty() && (absl::ascii_isalnum(common.back()) || common.back() == '_');
    if (!in_name) {
      const absl::string_view of_a = TakeNumber(&a), of_b = TakeNumber(&b);
      if (of_a.empty() != of_b.empty()) return std::nullopt;
      if (!of_a.empty()) {
        absl::StrAppend(&common, of_a == of_b ? of_a : kAny);
        continue;
      }
    }
    if (a.empty() || b.empty() || a.front() != b.front()) return std::nullopt;
    common.push_back(a.front());
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return common;
}

namespace {

// Returns the text of a * layer + b, or "..." for values that do not have this form.
std::string Linear(const std::vector<int64_t>& layers, const std::vector<int64_t>& values) {
  const auto all_are = [&](int64_t a, int64_t b) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (values[i] != a * (layers[i] + 1) + b) return false;
    }
    return true;
  };
  if (all_are(0, values[0])) return absl::StrCat(values[0]);
  if (layers.size() < 2 || layers[1] == layers[0]) return "...";
  const int64_t a = (values[1] - values[0]) / (layers[1] - layers[0]);
  const int64_t b = values[0] - a * (layers[0] + 1);
  if (a == 0 || !all_are(a, b)) return "...";
  const std::string of_layer = a == 1 ? "layer" : absl::StrCat(a, " * layer");
  if (a < 0) return a == -1 ? absl::StrCat(b, " - layer") : absl::StrCat(b, " - ", -a, " * layer");
  if (b == 0) return of_layer;
  return absl::StrCat(of_layer, b < 0 ? " - " : " + ", b < 0 ? -b : b);
}

}  // namespace

std::string IndexText(const std::vector<int64_t>& layers, const std::vector<FlowIndex>& indices) {
  std::vector<int64_t> firsts, lasts;
  for (const FlowIndex& index : indices) {
    firsts.push_back(index.first);
    lasts.push_back(index.last);
  }
  const std::string first = Linear(layers, firsts), last = Linear(layers, lasts);
  if (first == last) return first;
  return first == "..." || last == "..." ? "..." : absl::StrCat(first, "..", last);
}

}  // namespace plumb
