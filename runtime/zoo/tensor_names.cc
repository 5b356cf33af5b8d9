// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/tensor_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace plumb {
namespace {

constexpr absl::string_view kLayer = "{layer}", kHead = "{head}", kExpert = "{expert}";

// Consumes a number without leading zeros from the front of `name`.
std::optional<int64_t> ConsumeNumber(absl::string_view* name) {
  size_t digits = 0;
  while (digits < name->size() &&
         absl::ascii_isdigit(static_cast<unsigned char>((*name)[digits]))) {
    ++digits;
  }
  int64_t number;
  if (digits == 0 || digits > 9 || (digits > 1 && (*name)[0] == '0')) return std::nullopt;
  if (!absl::SimpleAtoi(name->substr(0, digits), &number)) return std::nullopt;
  name->remove_prefix(digits);
  return number;
}

bool Match(absl::string_view pattern, absl::string_view name, TensorNumbers* numbers) {
  while (!pattern.empty()) {
    const bool is_layer = absl::ConsumePrefix(&pattern, kLayer);
    if (is_layer || absl::ConsumePrefix(&pattern, kHead)) {
      const std::optional<int64_t> number = ConsumeNumber(&name);
      int64_t& known = is_layer ? numbers->layer : numbers->head;
      if (!number.has_value() || (known >= 0 && known != *number)) return false;
      known = *number;
    } else if (absl::ConsumePrefix(&pattern, kExpert)) {
      if (!ConsumeNumber(&name).has_value()) return false;
    } else if (absl::ConsumePrefix(&pattern, "*")) {
      if (pattern.empty()) return true;
      // Backtracking is cheap: patterns have one or two stars, and names are short.
      for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
        TensorNumbers of_rest = *numbers;
        if (!Match(pattern, name.substr(skipped), &of_rest)) continue;
        *numbers = of_rest;
        return true;
      }
      return false;
    } else {
      if (name.empty() || name[0] != pattern[0]) return false;
      name.remove_prefix(1);
      pattern.remove_prefix(1);
    }
  }
  return name.empty();
}

}  // namespace

std::optional<TensorNumbers> MatchTensorName(absl::string_view pattern, absl::string_view name) {
  constexpr size_t kMaxLength = 4096;  // bounds the backtracking
  TensorNumbers numbers;
  if (name.size() > kMaxLength) return std::nullopt;
  if (!Match(pattern, name, &numbers)) return std::nullopt;
  return numbers;
}

std::string FillTensorName(absl::string_view pattern, int64_t layer, int64_t expert, int64_t head) {
  return absl::StrReplaceAll(pattern, {{kLayer, absl::StrCat(layer)},
                                       {kExpert, absl::StrCat(expert)},
                                       {kHead, absl::StrCat(head)}});
}

bool NamesExperts(absl::string_view pattern) { return absl::StrContains(pattern, kExpert); }

absl::string_view WithoutPrefix(absl::string_view name, const std::vector<std::string>& prefixes) {
  size_t longest = 0;
  for (const std::string& prefix : prefixes) {
    if (absl::StartsWith(name, prefix)) longest = std::max(longest, prefix.size());
  }
  return name.substr(longest);
}

}  // namespace plumb
