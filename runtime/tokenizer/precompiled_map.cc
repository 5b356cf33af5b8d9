// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/precompiled_map.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

// A unit of the array has an offset to its children, the byte that leads to it, and a flag that a
// key ends at it; then one of its children holds the value.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t GetValue(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t GetLabel(uint32_t unit) { return unit & (0x80000000 | 0xFF); }
constexpr size_t kLongGrapheme = 6;  // bytes

uint32_t GetOffset(uint32_t unit) { return (unit >> 10) << ((unit >> 9 & 1) * 8); }

}  // namespace

absl::StatusOr<PrecompiledMap> PrecompiledMap::Read(absl::string_view base64) {
  std::string blob;
  uint32_t bytes = 0;
  if (!absl::Base64Unescape(base64, &blob) || blob.size() < sizeof(bytes)) {
    return absl::InvalidArgumentError("precompiled_charsmap is not base64 of a trie");
  }
  std::memcpy(&bytes, blob.data(), sizeof(bytes));
  if (bytes > blob.size() - sizeof(bytes) || bytes % sizeof(uint32_t) != 0 || bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("precompiled_charsmap records that its trie has ", bytes, " bytes, and has ",
                     blob.size() - sizeof(bytes), " in all"));
  }
  PrecompiledMap map;
  map.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data() + sizeof(bytes), bytes);
  map.texts_ = blob.substr(sizeof(bytes) + bytes);
  PLUMB_ASSIGN_OR_RETURN(map.grapheme_, SplitPattern::Grapheme());
  return map;
}

bool PrecompiledMap::AppendRule(absl::string_view text, std::string* out) const {
  size_t node = GetOffset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || GetLabel(units_[node]) != byte) return false;
    const uint32_t unit = units_[node];
    node ^= GetOffset(unit);
    if (HasLeaf(unit) && node < units_.size() && GetValue(units_[node]) < texts_.size()) {
      out->append(texts_.c_str() + GetValue(units_[node]));
      return true;
    }
  }
  return false;
}

absl::Status PrecompiledMap::Append(absl::string_view text, WorkBudget* budget,
                                    std::string* out) const {
  SplitMatcher matcher(grapheme_);
  for (size_t at = 0; at < text.size();) {
    const size_t before = out->size(), begin = at;
    size_t next = at;
    const uint32_t c = NextCodePoint(text, &next).value_or(0xFFFD);
    next = std::max(next, at + 1);
    // Only marks, line breaks and prepended characters form graphemes of several characters.
    const bool is_alone = next == text.size() ||
                          (static_cast<unsigned char>(text[next]) < 0x80 && c < 0x600 && c != '\r');
    size_t end = next;
    if (!is_alone) {
      size_t match = at;
      end = at;
      PLUMB_ASSIGN_OR_RETURN(const bool found,
                             matcher.Find(text, /*first=*/false, budget, &match, &end));
      if (!found || match != at) end = next;
    }
    if (end - at < kLongGrapheme && AppendRule(text.substr(at, end - at), out)) {
      at = end;
    } else {
      for (; at < end; at = next) {
        next = at;
        if (!NextCodePoint(text, &next)) ++next;
        const absl::string_view character = text.substr(at, next - at);
        if (!AppendRule(character, out)) out->append(character.data(), character.size());
      }
    }
    const size_t grown = out->size() - before;
    if (grown > at - begin) {
      PLUMB_RETURN_IF_ERROR(budget->ChargeGrowth(grown - (at - begin), "Precompiled"));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
